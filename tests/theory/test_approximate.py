"""Theorem 4.1: any 1-Lipschitz function, by a dist net of width d + 2."""

import math
from fractions import Fraction

import pytest
import torch

import linfdist as ld
from linfdist import theory
from linfdist.attacks import PGD

from .functions import grid, hills, mixed, steep, wave

CASES = [
    (wave, 1, 0.02, 2001),
    (steep, 1, 0.013, 2001),
    (hills, 2, 0.06, 101),
    (steep, 2, 0.09, 101),
    (mixed, 3, 0.17, 27),
]


@pytest.mark.parametrize(("f", "inputs", "eps", "count"), CASES)
def test_within_eps_everywhere(f, inputs, eps, count):
    """A grid that hits neither centres nor corners alone: a wrong constant, sign or rounding anywhere is seen."""
    g = theory.approximate(f, [(0, 1)] * inputs, eps)
    x = grid(inputs, count)
    worst = float((g(x).double() - f(x)).abs().max())
    assert worst <= eps
    assert g.width == inputs + 2
    assert {layer.out_features for layer in list(g.layers)[:-1]} == {inputs + 2}
    if f is steep:
        assert worst > 0.4 * eps  # no more pyramids than needed


def test_another_domain_and_precision():
    """Ends that are no powers of two, sides that differ, values far from 0."""
    domain = [(-3.3, -1.7), (10.1, 10.4)]

    def f(x):
        return 100 + (x[:, 0] + x[:, 1]).sin() / 2

    for dtype in (torch.float32, torch.float64):
        g = theory.approximate(f, domain, 0.1, dtype)
        x = grid(2, 51) * torch.tensor([1.6, 0.3]) + torch.tensor([-3.3, 10.1])
        x = torch.minimum(x, torch.tensor([-1.7, 10.4], dtype=torch.float64))
        assert g(x).dtype == dtype
        assert (g(x).double() - f(x)).abs().max() <= 0.1
        clear = (g(x).double() - 100.2).abs() > 1e-3
        assert torch.equal((g.classifier(100.2)(g.images(x)).argmax(1) == 1)[clear], (g(x) > 100.2)[clear])


def test_one_cell_is_enough_for_a_large_eps():
    g = theory.approximate(steep, [(0, 1)] * 2, 5.0)
    assert g.depth == 3
    assert (g(grid(2, 31)).double() - steep(grid(2, 31))).abs().max() <= 5


def test_one_lipschitz():
    """Between random neighbours, and in the contract's own words."""
    g = theory.approximate(hills, [(0, 1)] * 2, 0.08)
    x = torch.rand(2000, 2, dtype=torch.float64)
    y = (x + 0.03 * (2 * torch.rand(2000, 2, dtype=torch.float64) - 1)).clamp(0, 1)
    change, distance = (g(x) - g(y)).abs().double(), (x - y).abs().amax(1)
    assert (change <= distance + 1e-5).all()
    assert (change > 0.9 * distance).any()  # as steep as is allowed, somewhere
    assert g.layers.lipschitz == 1


def test_nothing_is_rounded_after_the_first_layer():
    """Constants are on a grid of binary digits, so float32 and float64 agree on points of that grid."""
    narrow, wide = (theory.approximate(steep, [(0, 1)] * 2, 1 / 8, dtype) for dtype in (torch.float32, torch.float64))
    x = grid(2, 65)  # multiples of 1/64
    assert narrow.depth == wide.depth == 2 * 25 + 1  # 5 cells a side: a quantum less than 2 eps each
    assert (narrow(x).double() - wide(x)).abs().max() < 1e-4
    twice = narrow.layers.double()(x)[:, 0]  # the same weights in float64
    assert torch.equal(twice, narrow.layers.float()(x.float())[:, 0].double())


def test_the_classifier_is_certified_like_any_other_network():
    """Radii are |g − threshold|; the box proves no less; no attack gets inside; nothing random was drawn."""
    before = torch.random.get_rng_state()
    g = theory.approximate(steep, [(0, 2)] * 2, 0.4)
    network = g.classifier(0.7)
    assert torch.equal(before, torch.random.get_rng_state())
    x = grid(2, 5, 0.1, 1.9)
    images, values = g.images(x), g(x).double()
    proof = ld.certify(network, images, None)
    assert torch.equal(proof.prediction == 1, values > 0.7)
    expected = (values - 0.7).abs() / 2  # one pixel is 2 units
    assert (proof.radius >= expected - 1e-3).all()
    inside, beyond = ([Fraction(r) * factor for r in proof.radius.tolist()] for factor in (1, Fraction(3, 2)))
    assert not PGD(steps=4)(network, images, proof.prediction, inside).broken.any()
    assert PGD(steps=4)(network, images, proof.prediction, [min(r, Fraction(1)) for r in beyond]).broken.any()


def test_the_classifier_can_be_frozen_exported_and_saved(tmp_path):
    g = theory.approximate(wave, [(0, 1)], 0.1)
    network = g.classifier(0.05)
    images = torch.arange(256, dtype=torch.uint8)[:, None, None, None]
    logits = network(images.float() / 255)
    frozen = ld.exact.freeze(network, k=4)
    assert frozen.facts["kept"] < frozen.facts["weights"]
    apart = (frozen(images) / (255 * 2**frozen.k) - logits).abs().max()
    assert apart <= frozen.facts["distance"]
    assert {each.prediction for each in ld.exact.certificates(frozen, images[::51])} == {0, 1}
    ld.models.save(network, tmp_path / "model.safetensors")
    assert torch.equal(ld.load(tmp_path / "model.safetensors")(images.float() / 255), logits)
    onnxruntime = pytest.importorskip("onnxruntime")
    ld.export.to_onnx(network, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"))
    outputs = session.run(["logits"], {"images": (images.float() / 255).numpy()})[0]
    assert torch.equal(torch.tensor(outputs), logits)


def nothing(x):
    return x.sum(1) * 0


@pytest.mark.parametrize(
    ("f", "domain", "eps", "message"),
    [
        (lambda x: 1.2 * x[:, 0], [(0, 1)], 0.1, "not 1-Lipschitz.*divide it by 1.2"),
        (lambda x: x.sum(1), [(0, 1)] * 2, 0.1, "not 1-Lipschitz"),
        (lambda x: (20 * x[:, 0]).floor() / 20, [(0, 1)], 0.01, "not 1-Lipschitz"),
        (lambda x: 1e9 * (x[:, 0] != 0.5), [(0, 1)], 0.5, "not 1-Lipschitz"),
        (lambda x: x[:, 0] * math.nan, [(0, 1)], 0.1, "f is nan at"),
        (lambda x: x[:, 0] / 0, [(0, 1)], 0.1, "f is inf at"),
        (lambda x: x, [(0, 1)], 0.1, r"one value for each point, \(5,\), got \(5, 1\)"),
        (lambda x: 0.0, [(0, 1)], 0.1, "must return a tensor"),
        (nothing, [], 0.1, "at least one interval"),
        (nothing, [(1, 1)], 0.1, "is empty"),
        (nothing, [(0, 1), (2, 1)], 0.1, r"domain\[1\] = \(2.0, 1.0\): is empty"),
        (nothing, [(0, math.nan)], 0.1, "must be finite"),
        (nothing, [(0, math.inf)], 0.1, "must be finite"),
        (nothing, [0, 1], 0.1, "must be one interval"),
        (nothing, [(0, 1)], 0.0, "eps = 0.0: must be a positive number"),
        (nothing, [(0, 1)], -0.1, "must be a positive number"),
        (nothing, [(0, 1)], math.nan, "must be a positive number"),
        (nothing, [(0, 1)], math.inf, "must be a positive number"),
        (nothing, [(0, 1)], "0.1", "must be a positive number"),
        (nothing, [(0, 1)] * 9, 0.1, "pyramids, two layers for each"),
        (lambda x: 1e6 + x[:, 0], [(0, 1)], 0.01, "too small for torch.float32"),
    ],
)
def test_what_cannot_be_approximated_is_refused(f, domain, eps, message):
    with pytest.raises((ValueError, TypeError), match=message):
        theory.approximate(f, domain, eps)


def test_points_outside_the_domain_are_refused():
    g = theory.approximate(wave, [(0, 1)], 0.2)
    for wrong in ([[1.01]], [[math.nan]], [[0.1, 0.2]]):
        with pytest.raises(ValueError, match=r"outside the domain|need points"):
            g(torch.tensor(wrong))
