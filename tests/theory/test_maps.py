"""Proposition A.2, map by map; integers, so that everything is exact."""

import pytest
import torch

from linfdist.theory.maps import Unit, enough, layer, maximum, negation, projection


def values(unit: Unit, x: torch.Tensor) -> torch.Tensor:
    return layer([unit], x.shape[1], enough(20), torch.float64)(x)[:, 0]


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randint(-20, 21, (500, 5)).double()


def test_the_three_maps(x):
    assert torch.equal(values(projection(3, 7), x), x[:, 3] + 7)
    assert torch.equal(values(negation(0, -2), x), -x[:, 0] - 2)
    assert torch.equal(values(maximum(1, 4, offset=5, shift=1), x), torch.maximum(x[:, 1] + 5, x[:, 4]) + 1)
    assert torch.equal(values(maximum(1, 4, offset=-9, sign=-1), x), torch.maximum(-x[:, 1] - 9, x[:, 4]))


def test_a_maximum_of_many(x):
    unit = Unit({0: (1, 3.0), 2: (-1, -20.0), 3: (1, 20.0)}, shift=-4)
    expected = torch.stack([x[:, 0] + 3, -x[:, 2] - 20, x[:, 3] + 20]).amax(0) - 4
    assert torch.equal(values(unit, x), expected)


def test_the_constant_is_large_enough_at_the_very_ends():
    """All other inputs at the bound, the one that matters at minus the bound."""
    x = torch.full((1, 5), 20.0, dtype=torch.float64)
    x[0, 2] = -20
    assert values(Unit({2: (1, -20.0)}), x).item() == -40
    assert values(negation(2), -x).item() == -20
