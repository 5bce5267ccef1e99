"""Networks of ℓ1 and ℓ2 distances: what they declare is true, and they are not 1-Lipschitz (Remark 3.5)."""

import copy
import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import linfdist as ld
from linfdist.attacks import attack
from linfdist.baselines import TRAINING_METHODS, AdderNet, BatchNorm, NormLinear, Plan, train
from linfdist.eps import parse_eps
from linfdist.models import DistNet
from linfdist.models.base import rounding_error
from linfdist.nn import Box
from linfdist.theory import measured_lipschitz

from ..nn.flushing import flushing
from .nets import inside, pixels

SEEDS = st.integers(0, 10**6)


def net(seed, norm=1):
    torch.manual_seed(seed)
    model = AdderNet((1, 3, 3), 4, [0.3], 0.31, [8, 6], norm)
    with torch.no_grad():
        for _ in range(40):  # until the running means are those of such images
            model(torch.rand(64, 1, 3, 3))
        model.scores.linear.weight.mul_(5)
    return model.eval()


@pytest.mark.parametrize("norm", [1, 2])
def test_the_counterexample(norm):
    """All pixels move by 0.1, away from all weights: distances of d inputs move by d^(1/p) as much, and those of ℓ∞ by
    as much. So a network of such distances changes its class where an ℓ∞-dist net with the same weights does not.
    """
    pixel_count, moved = 16, 0.1
    layer = NormLinear(pixel_count, 1, norm).eval()
    with torch.no_grad():
        layer.weight.zero_()
        x = torch.full((1, pixel_count), 0.5)
        change = (layer(x + moved) - layer(x)).item()
        assert change == pytest.approx(moved * pixel_count ** (1 / norm), rel=1e-5)
        assert change / moved > 0.999 * layer.lipschitz > 3.9
        assert (ld.dist(x + moved, layer.weight) - ld.dist(x, layer.weight)).item() == pytest.approx(moved, rel=1e-5)

    plain = DistNet((1, 4, 4), 2, 1, 1, [0.0], 1.0).eval()  # two neurons on the pixels: all 0, and all 1
    with torch.no_grad():
        plain.last.weight.copy_(torch.tensor([[0.0], [1.0]]).expand(2, pixel_count))
        plain.last.bias.copy_(torch.tensor([0.0, 0.4]))
        image = torch.full((1, 1, 4, 4), 0.5)
        assert plain(image).argmax(1).item() == 0
        assert ld.certify(plain, image, str(moved)).certified.item()
        assert measured_lipschitz(plain, image, math.inf) == 1
        assert measured_lipschitz(plain, image, norm) == pytest.approx(pixel_count ** (1 / norm), rel=1e-5)
        assert plain(image, float(norm)).argmax(1).item() == 0
        assert plain(image + moved, float(norm)).argmax(1).item() == 1  # within a ball where ℓ∞ distances have a proof


@settings(max_examples=8)
@given(SEEDS, st.sampled_from([1, 2]), st.sampled_from([1, 33]), st.sampled_from([1e-21, 1.0, 1e6]))
@torch.no_grad()
def test_boxes_enclose_and_rounding_is_as_declared(seed, norm, inputs, scale):
    torch.manual_seed(seed)
    layer = NormLinear(inputs, 5, norm).eval()
    layer.weight.mul_(scale)
    x, width = scale * torch.randn(1, inputs), 0.3 * scale
    box = Box(x - width, x + width)
    at = inside(*box, 40, torch.Generator().manual_seed(seed))
    bounds = layer.forward_box(box)
    for wanted in (False, True):
        with flushing(wanted):
            y = layer(at)
            assert ((bounds.lower <= y) & (y <= bounds.upper)).all()
    exact = torch.linalg.vector_norm(at.double()[:, None] - layer.weight.double(), norm, dim=2)
    assert (exact - layer(at)).abs().max().item() <= layer.rounding(
        Fraction(float(at.abs().max())), Fraction(1, 2**24)
    ).error
    assert (bounds.upper - bounds.lower).max() <= 2.01 * width * layer.lipschitz + 1e-4 * scale + 1e-15


@settings(max_examples=5)
@given(SEEDS)
@torch.no_grad()
def test_batch_normalisation_is_as_declared(seed):
    torch.manual_seed(seed)
    layer = BatchNorm(7)
    layer.weight.normal_()
    layer.bias.normal_()
    for _ in range(3):
        layer(3 * torch.randn(50, 7) + 2)
    with pytest.raises(RuntimeError, match="eval"):
        layer.forward_box(Box(torch.zeros(1, 7), torch.ones(1, 7)))
    layer.eval()
    x = torch.randn(1, 7)
    bounds, at = layer.forward_box(Box(x - 0.1, x + 0.1)), inside(x - 0.1, x + 0.1, 40, torch.Generator())
    y = layer(at)
    assert ((bounds.lower <= y) & (y <= bounds.upper)).all()
    exact = (at.double() - layer.running_mean) * layer.scale.double() + layer.bias
    assert (exact - y).abs().max().item() <= layer.rounding(Fraction(float(at.abs().max())), Fraction(1, 2**24)).error
    assert (y - layer(x)).abs().max() <= layer.lipschitz * (at - x).abs().max() + 1e-5
    layer.running_var[0] = -1e-3
    with pytest.raises(ValueError, match="negative"):
        layer.check("norm")


@pytest.mark.parametrize("norm", [1, 2])
@torch.no_grad()
def test_networks_declare_their_constant_and_no_certificate_is_broken(norm):
    model = net(1, norm)
    x, constant = pixels(model, 10), model.lipschitz * model.readout.lipschitz
    assert 1 / 0.31 < measured_lipschitz(model, x, math.inf) <= constant
    apart = (model(x).double() - copy.deepcopy(model).double()(x.double())).abs().max()
    assert apart <= rounding_error(model)
    for method in ("margin", "box"):
        proof = ld.certify(model, x, None, method=method)
        assert proof.radius.max() > 0
        radii = [parse_eps(radius) for radius in proof.radius.tolist()]
        assert not attack("pgd")(model, x, proof.prediction, radii).broken.any()
    assert attack("pgd")(model, x, proof.prediction, parse_eps("0.4")).broken.any()


def test_trained_they_are_accurate_and_certified_by_nothing(tmp_path):
    data, test = (ld.data.load("digits", split=split) for split in ("train", "test"))
    plan = Plan(eps=0, epochs=6, warm_up=0, ramp=0, lr=0.005, batch_size=64)
    for name in ("l1-dist", "l2-dist"):
        method = TRAINING_METHODS[name]()
        torch.manual_seed(0)
        model = method.network((1, 8, 8), 10, [0.3], 0.37, size="mlp", width=0.125)
        train(model, data.images, data.labels, method, plan)
        x, y = model.from_bytes(test.images[:100]), test.labels[:100]
        proof = ld.certify(model, x, "0.05", y, method="box", radii=False)
        assert (proof.prediction == y).float().mean() > 0.8
        assert not proof.certified.any()
        assert measured_lipschitz(model, x, math.inf) > 3 / 0.37  # a 1-Lipschitz network has at most 1 / std
    ld.models.save(model, tmp_path / "l2.safetensors")
    assert torch.equal(ld.load(tmp_path / "l2.safetensors")(x), model(x))


def test_what_cannot_be_built_is_refused():
    with pytest.raises(ValueError, match="norm = 3"):
        NormLinear(4, 4, 3)
    model = net(1, 1)
    model.body.layers[2].norm = 0.5  # has no Lipschitz constant at all
    with pytest.raises(ValueError, match=r"norm = 0\.5: must be 1 or 2"):
        ld.certify(model, pixels(model, 2), "0.01")
    with pytest.raises(ValueError, match="at least one hidden layer"):
        AdderNet((1, 3, 3), 4, [0.3], 0.31, [])
    with pytest.raises(ValueError, match=r"at least one neuron, got hidden = \[3, 0\]"):
        AdderNet((1, 3, 3), 4, [0.3], 0.31, [3, 0])
