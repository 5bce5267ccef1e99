"""Functions that are 1-Lipschitz in ℓ∞, from points (N, d) to values (N,): by their slopes' ℓ1 norm of at most 1."""

import torch
from torch import Tensor


def wave(x: Tensor) -> Tensor:
    return (7 * x[:, 0]).sin() / 7


def hills(x: Tensor) -> Tensor:
    return (3 * x[:, 0]).sin() / 6 + (x[:, 1] - 0.3).abs() / 2


def steep(x: Tensor) -> Tensor:
    """As steep as is allowed, everywhere: the distance to a point."""
    return (x - 0.4).abs().amax(1)


def mixed(x: Tensor) -> Tensor:
    return x.amax(1) / 2 + (x[:, 0] - x[:, 2]).abs() / 4


def grid(inputs: int, count: int, low: float = 0.0, high: float = 1.0) -> Tensor:
    """All points of an even grid with `count` points a side: (count^d, d) float64."""
    line = torch.linspace(low, high, count, dtype=torch.float64)
    return torch.cartesian_prod(*[line] * inputs).reshape(-1, inputs)
