"""MirrorPairs: the larger and the smaller of two pixels, and nothing that tells an image from its mirror image."""

from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from linfdist.nn import Box, MirrorPairs

from .samples import assert_encloses, points_of, random_box

SHAPES = st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 4), st.integers(1, 7))
LAYER = MirrorPairs()


def test_values_by_hand():
    even, odd = torch.tensor([[[[3.0, 1.0, 4.0, 5.0]]]]), torch.tensor([[[[3.0, 9.0, 2.0, 5.0, 1.0]]]])
    assert LAYER(even).tolist() == [[[[5, 4, 1, 3]]]]
    assert LAYER(odd).tolist() == [[[[3, 9, 2, 5, 1]]]]
    assert LAYER(odd.flip(3)).tolist() == [[[[3, 9, 2, 5, 1]]]]
    assert LAYER.output_shape((2, 3, 4)) == (2, 3, 4)
    assert LAYER.rounding(Fraction(1), Fraction(1, 2**24)).error == 0
    assert not LAYER.state_dict()


@settings(max_examples=60)
@given(seed=st.integers(0, 10**6), shape=SHAPES)
def test_an_image_and_its_mirror_image_are_one_and_no_pixel_is_lost(seed, shape):
    torch.manual_seed(seed)
    x = torch.randn(shape)
    y = LAYER(x)
    assert torch.equal(y, LAYER(x.flip(3)))
    assert torch.equal(y.sort(3).values, x.sort(3).values)
    assert torch.equal(LAYER(y), y)


@settings(max_examples=60)
@given(seed=st.integers(0, 10**6), shape=SHAPES, radius=st.sampled_from([0.0, 1e-7, 0.1, 3.0]))
def test_boxes_enclose_and_are_exact(seed, shape, radius):
    torch.manual_seed(seed)
    box = random_box(*shape, radius=radius)
    bounds = LAYER.forward_box(box)
    for x in points_of(box, 5):
        assert_encloses(bounds, LAYER(x))
    assert torch.equal(bounds.lower, LAYER(box.lower))  # both ends are reached
    assert torch.equal(bounds.upper, LAYER(box.upper))


@settings(max_examples=60)
@given(seed=st.integers(0, 10**6), shape=SHAPES, radius=st.sampled_from([1e-3, 0.1, 3.0]))
def test_it_moves_by_no_more_than_the_pixels(seed, shape, radius):
    torch.manual_seed(seed)
    x = torch.randn(shape, dtype=torch.float64)
    for step in (torch.rand_like(x) - 0.5, (torch.rand_like(x) - 0.5).sign(), torch.ones_like(x)):
        moved = (LAYER(x + radius * step) - LAYER(x)).abs().amax((1, 2, 3))
        assert (moved <= LAYER.lipschitz * (radius * step).abs().amax((1, 2, 3)) * (1 + 1e-12)).all()


def test_gradients():
    x = torch.rand(2, 2, 3, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(LAYER, x)


def test_equal_pixels_share_the_gradient():
    x = torch.ones(1, 1, 1, 5, requires_grad=True)
    LAYER(x).backward(torch.tensor([[[[1.0, 2.0, 3.0, 4.0, 5.0]]]]))
    assert x.grad.tolist() == [[[[3, 3, 3, 3, 3]]]]


def test_what_is_not_a_number_stays_so():
    x = torch.tensor([[[[0.0, torch.nan, 1.0, 2.0]]]])
    assert LAYER(x).isnan().sum() == 2
    bounds = LAYER.forward_box(Box(x, x))
    assert bounds.lower.isnan().sum() == 2


def test_only_images_have_mirror_images():
    with pytest.raises(ValueError, match=r"those of an image \(C, H, W\), not of \(12,\)"):
        LAYER(torch.rand(2, 12))
