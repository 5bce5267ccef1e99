"""The strong attack: it bites, and never where a proof says it cannot."""

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from linfdist.attacks import PGD, Strong
from linfdist.attacks.base import Ball
from linfdist.attacks.strong import STAGES
from linfdist.models import ConvDistNetMLP, DistNetMLP
from linfdist.nn import Box

from ..certificates.nets import margin
from .nets import many_pixels, random_net, two_classes

EPS = Fraction(3, 20)


@pytest.fixture(scope="module")
def found(trained):
    return Strong()(*trained, EPS)


def check(network, x, y, eps, found):
    """Every claim again, by other means."""
    again = network(found.images)
    for k in range(len(x)):
        assert (again[k].argmax() != y[k]) == found.broken[k]
        before, after = x[k].flatten().tolist(), found.images[k].flatten().tolist()
        size = max(abs(Fraction(a) - Fraction(b)) for a, b in zip(before, after, strict=True))
        assert size == Fraction(found.size[k].item())
        assert size <= eps
        assert min(after) >= 0
        assert max(after) <= 1


def test_every_claim_holds(trained, found):
    check(*trained, EPS, found)


def test_what_is_certified_is_never_broken(trained, found):
    proof = margin(trained.network, trained.x)
    certified = proof.radius > 0.15 + 1e-9
    assert certified.sum() > 50
    assert not (found.broken & certified & (proof.prediction == trained.y)).any()


def test_it_nearly_reaches_the_certificate(trained, found):
    """At most 3 of 200 images are left between what is broken and what intervals prove."""
    net, x, y = trained
    with torch.no_grad():
        ball = Ball.around(x, [EPS])
        lower, upper = net.forward_box(Box(ball.lower, ball.upper))
    proved = lower.gather(1, y[:, None])[:, 0] > upper.scatter(1, y[:, None], -math.inf).amax(1)
    assert proved.sum() > 50
    assert not (found.broken & proved).any()
    assert (~found.broken & ~proved).sum() <= 3


def test_it_breaks_all_that_pgd_breaks_and_more(trained, found):
    weak = PGD()(*trained, EPS)
    assert not (weak.broken & ~found.broken).any()
    assert found.broken.sum() >= weak.broken.sum()
    net, x, y, eps = many_pixels(), torch.full((1, 1, 6, 6), 0.3), torch.tensor([0]), Fraction(1, 4)
    assert not PGD()(net, x, y, eps).broken
    strong = Strong()(net, x, y, eps)
    assert strong.broken
    check(net, x, y, eps, strong)


def test_unbroken_images_are_attempts(trained, found):
    """Their margin is smaller than that of the original image, and not larger than PGD's."""
    standing = ~found.broken
    net, y = trained.network, trained.y[standing]

    def lead(images):
        top = net(images).topk(2, dim=1)
        assert torch.equal(top.indices[:, 0], y)
        return top.values[:, 0] - top.values[:, 1]

    after = lead(found.images[standing])
    assert (after < lead(trained.x[standing])).all()
    assert (after <= lead(PGD()(*trained, EPS).images[standing])).all()


def test_same_seed_same_images(trained):
    net, x, y = trained.network, trained.x[:8], trained.y[:8]
    whole = Strong(seed=1)(net, x, y, EPS)
    assert torch.equal(whole.images, Strong(seed=1)(net, x, y, EPS).images)


def test_the_batch_does_not_matter(trained, found):
    """But for rounding in the gradients of finite p: what is broken is the same."""
    order = torch.randperm(30)
    parts = [Strong()(trained.network, trained.x[part], trained.y[part], EPS) for part in order.split(16)]
    assert torch.equal(found.broken[order], torch.cat([part.broken for part in parts]))


def test_never_giving_up_breaks_no_less(trained, found):
    persistent = Strong(reach=1.0)(trained.network, trained.x[:60], trained.y[:60], EPS)
    assert not (found.broken[:60] & ~persistent.broken).any()


@settings(max_examples=10)
@given(seed=st.integers(0, 10**6), size=st.sampled_from([1e-3, 1.0, 30.0]), depth=st.integers(1, 4))
def test_nothing_breaks_within_the_certified_radius(seed, size, depth):
    """At each image's own radius, to the last bit."""
    net = random_net(seed, depth=depth, size=size)
    x = torch.rand(12, 1, 3, 3)
    proof = margin(net, x)
    radii = [Fraction(radius) for radius in proof.radius.clamp(max=1).tolist()]
    assert not Strong(stages=STAGES[:2])(net, x, proof.prediction, radii).broken.any()


def test_the_boundary_of_one_pixel():
    net, x, y = two_classes(0.0, 1.0), torch.full((1, 1, 1, 1), 0.25), torch.tensor([0])
    assert not Strong()(net, x, y, Fraction(1, 4)).broken
    assert Strong()(net, x, y, Fraction(1, 4) + Fraction(1, 10**6)).broken


@pytest.mark.parametrize("kind", [DistNetMLP, ConvDistNetMLP])
def test_networks_with_a_head(kind):
    net = kind((1, 6, 6), 4, 6, 4, [0.3], 0.3, identity_init=False, head=8).eval()
    x = torch.rand(20, 1, 6, 6)
    y = net(x).argmax(1)
    found = Strong()(net, x, y, Fraction(1, 2))
    assert found.broken.any()
    check(net, x, y, Fraction(1, 2), found)


def test_double_precision_and_few_classes():
    """Two classes have no third one to lift."""
    net, x, y = two_classes(0.0, 1.0, torch.float64), torch.full((1, 1, 1, 1), 0.25).double(), torch.tensor([0])
    assert not Strong()(net, x, y, Fraction(1, 4) - Fraction(1, 10**12)).broken
    found = Strong()(net, x, y, Fraction(1, 4) + Fraction(1, 10**12))
    assert found.broken
    assert found.images.dtype == torch.float64


def test_bad_options():
    for reach in (-0.1, 1.5):
        with pytest.raises(ValueError, match=r"reach = "):
            Strong(reach=reach)
