"""Exact networks answer `linfdist.certify` like any network, and have a float form that attacks can use."""

from fractions import Fraction

import pytest
import torch

import linfdist as ld
from linfdist import exact

from .nets import random_mlp, random_net


@pytest.fixture(params=["plain", "head"])
def frozen(request):
    return exact.freeze(random_net(3) if request.param == "plain" else random_mlp(3), k=3)


def test_certify_says_what_the_certificates_as_data_say(frozen):
    x = torch.randint(256, (12, *frozen.shape), dtype=torch.uint8)
    proof = ld.certify(frozen, x, None)
    for k, image in enumerate(x):
        try:
            (own,) = exact.certify(frozen, image[None])
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
    for radius, own in zip(proof.radius.tolist(), exact.certify(frozen, x, "margin"), strict=True):
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
    scale = 255 * 2**frozen.k if frozen.head is None else 1
    torch.testing.assert_close(floats(x / 255) * scale, frozen(x).float(), rtol=1e-4, atol=0.05)
    assert ld.certify(floats, x[:3] / 255, "0.01").radius.shape == (3,)


def test_what_is_refused(frozen):
    x = torch.randint(256, (2, *frozen.shape), dtype=torch.uint8)
    with pytest.raises(TypeError, match="8-bit pixels"):
        ld.certify(frozen, x / 255, "0.1")
    with pytest.raises(TypeError, match="milp"):
        ld.certify(frozen, x, "0.1", method="milp")
    with pytest.raises(TypeError, match="per pixel"):
        ld.certify(frozen, x, torch.tensor(0.1))
    with pytest.raises(ValueError, match="classes 0 to"):
        ld.certify(frozen, x, "0.1", torch.tensor([0, 99]))
    if frozen.head is not None:
        with pytest.raises(TypeError, match="'box' alone"):
            ld.certify(frozen, x, "0.1", method="margin")


def test_the_old_import_path_is_an_alias():
    from linfdist.certificates.exact.twin import verify

    from linfdist.certificates import exact as old

    assert old is exact
    assert verify is exact.verify
