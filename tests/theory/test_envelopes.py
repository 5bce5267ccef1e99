"""The shallow form: bounds of every 1-Lipschitz function through the data, attained by two of them."""

import math

import pytest
import torch

import linfdist as ld
from linfdist import theory

from .functions import grid, hills, steep


@pytest.fixture
def points() -> torch.Tensor:
    return torch.rand(40, 2, dtype=torch.float64)


def test_every_function_lies_between(points):
    x = grid(2, 41)
    for f in (hills, steep, lambda x: -steep(x)):
        through = theory.interpolate(points, f(points))
        lower, upper = through.lower(x), through.upper(x)
        assert (lower <= f(x) + 1e-12).all()
        assert (f(x) <= upper + 1e-12).all()
        assert ((through(x) - f(x)).abs() <= through.error(x) + 1e-12).all()
        assert torch.allclose(through.lower(points), f(points), atol=1e-12)
        assert torch.allclose(through.upper(points), f(points), atol=1e-12)


def test_the_envelopes_are_tight(points):
    """They are 1-Lipschitz themselves, so no narrower bounds hold for all functions."""
    through = theory.interpolate(points, hills(points))
    x, y = torch.rand(2, 3000, 2, dtype=torch.float64)
    for envelope in (through.lower, through.upper):
        assert ((envelope(x) - envelope(y)).abs() <= (x - y).abs().amax(1) + 1e-12).all()
        theory.interpolate(torch.cat([points, x[:200]]), torch.cat([hills(points), envelope(x[:200])]))


def test_as_a_network(points):
    through = theory.interpolate(points, hills(points))
    g = through.network([(0, 1)] * 2)
    x = grid(2, 31)
    assert (g.width, g.depth) == (40, 2)
    assert (g(x).double() - through.lower(x)).abs().max() < 1e-5
    proof = ld.certify(g.classifier(0.1), g.images(x), None)
    assert (proof.radius >= (through.lower(x) - 0.1).abs() - 1e-4).all()


def test_no_points_at_once_and_none_at_all(points):
    assert theory.interpolate(points, hills(points))(torch.empty(0, 2)).shape == (0,)


@pytest.mark.parametrize(
    ("points", "values", "message"),
    [
        ([[0.0], [1.0]], [0.0, 1.5], "from .0.0. to .1.0., a distance of 1, the value changes by 1.5"),
        ([[0.5], [0.5]], [0.0, 0.1], "two values there"),
        ([[0.0]], [math.nan], "values must be finite"),
        ([[math.inf]], [0.0], "points must be finite"),
        ([[0.0]], [0.0, 1.0], "need at least one point"),
        ([0.0], [0.0], "need at least one point"),
    ],
)
def test_data_without_such_a_function_are_refused(points, values, message):
    with pytest.raises(ValueError, match=message):
        theory.interpolate(torch.tensor(points), torch.tensor(values))


def test_no_data_are_refused():
    with pytest.raises(ValueError, match="need at least one point"):
        theory.interpolate(torch.empty(0, 2), torch.empty(0))
