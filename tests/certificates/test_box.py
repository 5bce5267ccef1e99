"""Balls as boxes of floats, and boxes through whole networks."""

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from linfdist.bounds.interval import ball
from linfdist.eps import round_up
from linfdist.nn import Box

from ..nn.samples import assert_encloses, points_of
from .nets import head_net, images, random_net


@given(x=st.floats(0, 1, width=32), eps=st.fractions(0, 1), single=st.booleans())
@example(x=1 - 2.0**-24, eps=1 - Fraction(7, 2**26), single=True)  # eps to nearest would leave out 3 · 2^-26
def test_the_ball_holds_every_float_within_eps(x, eps, single):
    """The last floats on either side are in, in exact arithmetic, and the box is no wider than eps rounded up."""
    dtype = torch.float32 if single else torch.float64
    image = torch.full((1, 1, 1, 1), x, dtype=dtype)
    box = ball(image, torch.full((1, 1, 1, 1), round_up(eps), dtype=torch.float64))
    for end, sign in ((box.lower, -1), (box.upper, 1)):
        beyond = torch.nextafter(end, torch.full_like(end, sign * math.inf))
        if 0 <= beyond.item() <= 1:
            assert sign * (Fraction(beyond.item()) - Fraction(x)) > eps
        assert 0 <= end.item() <= 1
        assert sign * (Fraction(end.item()) - Fraction(x)) <= eps * (1 + Fraction(1, 2**22)) + Fraction(1, 2**24)


def test_simple_balls_are_exact():
    x = torch.tensor([0.0, 0.25, 0.75, 1.0]).view(4, 1, 1, 1)
    box = ball(x, torch.full((1, 1, 1, 1), 0.5, dtype=torch.float64))
    assert box.lower.flatten().tolist() == [0, 0, 0.25, 0.5]
    assert box.upper.flatten().tolist() == [0.5, 0.75, 1, 1]
    point = ball(x, torch.zeros(1, 1, 1, 1, dtype=torch.float64))
    assert torch.equal(point.lower, x)
    assert torch.equal(point.upper, x)
    cube = ball(x, torch.full((1, 1, 1, 1), 1e300, dtype=torch.float64))
    assert not cube.lower.any()
    assert cube.upper.all()


@given(
    seed=st.integers(0, 10**6), depth=st.integers(1, 4), size=st.sampled_from([1e-30, 1e-3, 1.0, 1e4, 1e30]),
    eps=st.sampled_from([0.0, 1e-7, 0.01, 0.3, 2.0]), shift=st.booleans(),
)  # fmt: skip
def test_boxes_enclose_whole_plain_nets(seed, depth, size, eps, shift):
    net = random_net(seed, 6, depth, size, shift)
    box = ball(images(8, seed), torch.full((1, 1, 1, 1), eps, dtype=torch.float64))
    with torch.no_grad():
        bounds = net.forward_box(box)
        for point in points_of(box, count=6):
            assert_encloses(bounds, net(point))


@pytest.mark.parametrize("conv", [False, True])
@pytest.mark.parametrize("rows", [1, 8, 40])
def test_boxes_enclose_features_whatever_the_batch(backend, conv, rows):
    """A box from one batch holds the features of images run in another: the same rounded operations either way."""
    net = head_net(rows, conv=conv)
    box = ball(images(rows, seed=rows), torch.full((1, 1, 1, 1), 0.1, dtype=torch.float64))
    with torch.no_grad():
        bounds = net.features_box(box)
        for point in points_of(box, count=3):
            assert_encloses(bounds, net.features(point))
            alone = torch.cat([net.features(image[None]) for image in point[:3]])
            assert_encloses(Box(bounds.lower[:3], bounds.upper[:3]), alone)
