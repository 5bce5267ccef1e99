"""Exact networks answer `linfdist.certify` like any network, and have a float form that attacks can use."""

from fractions import Fraction

import pytest
import torch

import linfdist as ld
from linfdist import exact
from linfdist.attacks import PGD

from .averages import EVERYTHING
from .nets import random_mlp, random_net

NETS = {
    "plain": lambda: random_net(3),
    "head": lambda: random_mlp(3),
    "averages": lambda: random_net(3, shape=(1, 4, 4), **EVERYTHING),
}


@pytest.fixture(params=NETS)
def frozen(request):
    return exact.freeze(NETS[request.param](), k=3)


def test_certify_says_what_the_certificates_as_data_say(frozen):
    x = torch.randint(256, (12, *frozen.shape), dtype=torch.uint8)
    proof = ld.certify(frozen, x, None)
    for k, image in enumerate(x):
        try:
            (own,) = exact.certificates(frozen, image[None])
        except exact.Undecided:
            assert proof.radius[k] == 0
            continue
        assert proof.prediction[k] == own.prediction
        radius = Fraction(proof.radius[k].item())
        assert Fraction(own.levels, 255) - Fraction(1, 10**12) <= radius < Fraction(own.levels + 1, 255)
    assert proof.certified is None
    assert (proof.radius > 0).any()


def test_margin_radii_are_those_of_an_open_ball():
    frozen = exact.freeze(random_net(5), k=2)
    x = torch.randint(256, (20, *frozen.shape), dtype=torch.uint8)
    proof = ld.certify(frozen, x, None, method="margin")
    for radius, own in zip(proof.radius.tolist(), exact.certificates(frozen, x, "margin"), strict=True):
        assert Fraction(radius) < own.radius / 255 or radius == own.radius == 0
        assert own.radius / 255 - Fraction(radius) < Fraction(1, 10**12) or radius == 1.0
    assert torch.equal(proof.radius, proof.margin_radius)


def test_certified_at_eps_is_exact_and_never_more_than_the_radius_plus_a_level(frozen):
    x = torch.randint(256, (40, *frozen.shape), dtype=torch.uint8)
    y = frozen(x).argmax(1)
    for eps in ("0", "1/255", "3/255", "0.02"):
        proof = ld.certify(frozen, x, eps, y)
        assert (proof.radius[proof.certified] >= float(Fraction(eps)) - 1e-12).all()
        wrong = ld.certify(frozen, x, eps, (y + 1) % frozen.classes)
        assert not wrong.certified.any()
        far = proof.radius > float(Fraction(eps)) + 1 / 255
        assert proof.certified[far].all()


def test_the_float_form_gives_the_same_logits(frozen):
    x = torch.randint(256, (30, *frozen.shape), dtype=torch.uint8)
    floats = exact.as_floats(frozen)
    scale = 255 * frozen.steps if frozen.head is None else 1
    torch.testing.assert_close(floats(x / 255) * scale, frozen(x).float(), rtol=1e-4, atol=0.05)
    assert ld.certify(floats, x[:3] / 255, "0.01").radius.shape == (3,)


def test_what_is_refused(frozen):
    x = torch.randint(256, (2, *frozen.shape), dtype=torch.uint8)
    with pytest.raises(TypeError, match="8-bit pixels"):
        ld.certify(frozen, x / 255, "0.1")
    with pytest.raises(ValueError, match="milp"):
        ld.certify(frozen, x, "0.1", method="milp")
    with pytest.raises(TypeError, match="per pixel"):
        ld.certify(frozen, x, torch.tensor(0.1))
    with pytest.raises(ValueError, match="classes 0 to"):
        ld.certify(frozen, x, "0.1", torch.tensor([0, 99]))
    if frozen.head is not None:
        with pytest.raises(ValueError, match="certified by box"):
            ld.certify(frozen, x, "0.1", method="margin")


def test_a_margin_of_whole_levels_does_not_contradict_an_attack_of_that_size():
    """The margin's ball is open: at its edge the class may change, and no evaluation may call that a contradiction."""
    net = ld.models.DistNet((1, 1, 1), 2, 1, 1, [0.0], 1.0).eval()
    with torch.no_grad():
        net.last.weight.copy_(torch.tensor([[0.0], [20 / 255]]))
        net.last.bias.zero_()
    frozen = exact.freeze(net, k=0)
    x = torch.arange(20, dtype=torch.uint8).view(-1, 1, 1, 1)
    labels = frozen(x).argmax(1)
    for eps in (Fraction(k, 255) for k in range(1, 20)):
        found = PGD()(frozen, x, labels, eps)
        for method in ("margin", "box"):
            proof = ld.certify(frozen, x, eps, labels, method=method)
            inside = found.broken & (found.size <= proof.radius)
            assert not inside.any()
            assert not (found.broken & proof.certified).any()


def test_many_images_are_certified_a_few_at_a_time(monkeypatch):
    frozen = exact.freeze(random_net(1), k=1)
    x = torch.randint(256, (50, *frozen.shape), dtype=torch.uint8)
    whole = ld.certify(frozen, x, "0.02")
    monkeypatch.setattr(exact.certificate, "ROWS", 7)
    parts = ld.certify(frozen, x, "0.02")
    assert torch.equal(whole.radius, parts.radius)
    assert torch.equal(whole.certified, parts.certified)
    assert torch.equal(whole.margin_radius, parts.margin_radius)
    assert len(ld.certify(frozen, x[:0], "0.02").radius) == 0


def test_an_exact_network_shows_itself_on_one_line(frozen):
    assert len(repr(frozen)) < 200
    assert frozen.sha256[:12] in repr(frozen)


def test_a_name_is_not_a_network():
    with pytest.raises(TypeError, match=r"'mnist-0\.3' is the name of a network: load it first"):
        ld.certify("mnist-0.3", torch.rand(1, 1, 28, 28), "0.1")
