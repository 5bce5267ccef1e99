"""Remark 3.5: only p = inf is 1-Lipschitz; the bound d^(1/p) holds, and is attained."""

import math

import pytest
import torch

import linfdist as ld
from linfdist import theory

from ..export.nets import convolutional, images, plain, with_head

POWERS = [1.0, 2.0, 8.0, 100.0, 1000.0, math.inf]


def test_measured_never_exceeds_the_bound():
    network, x = plain(), images(10).float() / 255
    found = [theory.measured_lipschitz(network, x, p) for p in POWERS]
    bounds = [theory.lipschitz_bound(network, p) for p in POWERS]
    assert all(one <= two * (1 + 1e-4) for one, two in zip(found, bounds, strict=True))
    assert bounds == sorted(bounds, reverse=True)
    assert bounds[-1] == network.lipschitz
    assert found[-1] == pytest.approx(1 / 0.31, rel=1e-5)
    assert found[0] > 5 * network.lipschitz


def test_the_bound_is_attained():
    """A single ℓ1 neuron far from its input, and a single ℓ2 neuron along the diagonal."""
    network = ld.models.DistNet((1, 2, 2), 2, width=1, depth=1, mean=[0.0], std=1.0).eval()
    with torch.no_grad():
        network.double().last.weight.fill_(5.0)
    x = torch.zeros(1, 1, 2, 2).double()
    for p in POWERS[:-1]:
        assert theory.measured_lipschitz(network, x, p) == pytest.approx(4 ** (1 / p), rel=1e-5)
        assert theory.lipschitz_bound(network, p) == pytest.approx(4 ** (1 / p))


def test_differences_do_not_exceed_the_bound():
    network, x = plain().double(), images(200).double() / 255
    y = (x + 0.01 * torch.randn_like(x)).clamp(0, 1)
    for p in (1.0, 3.0, 50.0):
        steepness = (network(x, p) - network(y, p)).abs().amax(1) / (x - y).abs().flatten(1).amax(1)
        assert steepness.max() <= theory.lipschitz_bound(network, p)


def test_layers_are_asked_not_classes():
    """Convolutions have as many inputs as a window has pixels; heads have no constant."""
    with pytest.raises(TypeError, match="Head has no Lipschitz constant"):
        theory.lipschitz_bound(with_head(), 2)
    with pytest.raises(TypeError, match="Head"):
        theory.lipschitz_bound(convolutional(), 2)
    assert theory.lipschitz_bound(plain(per_class=3), 2) == theory.lipschitz_bound(plain(), 2)


def test_bad_input_is_refused():
    for p in (0.5, math.nan, -1):
        with pytest.raises(ValueError, match=r"p = .* must be a number in"):
            theory.lipschitz_bound(plain(), p)
    with pytest.raises(ValueError, match="images is empty"):
        theory.measured_lipschitz(plain(), torch.zeros(0, 2, 6, 7), 2)
