"""AutoAttack, the real one."""

import math
import sys
from fractions import Fraction

import pytest
import torch

from linfdist.attacks import PGD, attack

from ..certificates.nets import margin
from .nets import many_pixels, random_net

QUICK = {"steps": 6, "queries": 60}


def auto(**options):
    pytest.importorskip("pyautoattack", reason="the extra `attack`")
    return attack("auto", **{**QUICK, **options})


def test_it_bites_and_never_within_the_certificate(trained):
    net, x, y, eps = trained.network, trained.x[:10], trained.y[:10], Fraction(3, 20)
    found = auto()(net, x, y, eps)
    proof = margin(net, x)
    right = proof.prediction == y
    assert (found.broken & right).any()
    assert not (found.broken & right & (proof.radius > 0.15 + 1e-9)).any()
    assert torch.equal(net(found.images).argmax(1) != y, found.broken)
    for before, after in zip(x.flatten().tolist(), found.images.flatten().tolist(), strict=True):
        assert abs(Fraction(after) - Fraction(before)) <= eps
        assert 0 <= after <= 1


def test_it_gets_surrogate_gradients():
    """Where p = inf shows one pixel at a time, and all must move."""
    net, x, y, eps = many_pixels(), torch.full((1, 1, 6, 6), 0.3), torch.tensor([0]), Fraction(1, 4)
    assert not PGD()(net, x, y, eps).broken
    assert not auto(queries=1, p=math.inf)(net, x, y, eps).broken
    assert auto(queries=1)(net, x, y, eps).broken


@pytest.mark.parametrize("classes", [2, 3, 4])
def test_few_classes(classes):
    net, x = random_net(4, classes=classes), torch.rand(6, 1, 3, 3)
    y = net(x).argmax(1)
    found = auto()(net, x, y, Fraction(1, 2))
    assert torch.equal(net(found.images).argmax(1) != y, found.broken)


def test_seed_state_and_tracing(trained):
    net, x, y, eps = trained.network, trained.x[:6], trained.y[:6], Fraction(1, 10)

    def tracer(frame, event, argument):
        return None

    before, numbers = [p.clone() for p in net.parameters()], torch.get_rng_state()
    old = sys.gettrace()
    sys.settrace(tracer)
    try:
        found = auto(seed=5)(net, x, y, eps)
        assert sys.gettrace() is tracer
    finally:
        sys.settrace(old)
    assert torch.equal(torch.get_rng_state(), numbers)
    torch.rand(3)
    assert torch.equal(auto(seed=5)(net, x, y, eps).images, found.images)
    assert all(torch.equal(a, b) and b.grad is None for a, b in zip(before, net.parameters(), strict=True))
    assert all(p.requires_grad for p in net.parameters())


def test_radii_of_their_own_and_double_precision():
    net = random_net(4).double()
    x = torch.rand(4, 1, 3, 3, dtype=torch.float64)
    y = net(x).argmax(1)
    radii = [Fraction(0), Fraction(1, 100), Fraction(1, 2), Fraction(1, 2)]
    found = auto()(net, x, y, radii)
    assert found.images.dtype == torch.float64
    assert not found.broken[0]
    assert all(Fraction(size) <= eps for size, eps in zip(found.size.tolist(), radii, strict=True))
    assert found.size[1] <= 0.01


def test_without_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyautoattack", None)
    with pytest.raises(ImportError, match=r"pip install pyautoattack"):
        attack("auto")


def test_bad_options():
    for options in ({"steps": 0}, {"queries": 0}):
        with pytest.raises(ValueError, match="must be at least 1"):
            auto(**options)
