"""Proposition A.2: what a single ℓ∞-dist neuron can compute besides distances."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..nn import DistLinear


@dataclass(frozen=True)
class Unit:
    """A neuron that computes max over j of sign[j] x[j] + offset[j], plus `shift`, for all inputs |x| <= bound.

    terms: {j: (sign, offset)}, each sign 1 or -1. The trick is that of the paper: with a constant K that is so large
    that x[j] + offset[j] + K is positive and larger than every other |x[k]|, the distance

        ‖x − w‖∞ − K,    w[j] = −sign[j] (offset[j] + K) for the terms, w[k] = 0 for all others

    is that maximum. K = 2 (bound + the largest |offset|) is enough, and so is any larger number.
    """

    terms: Mapping[int, tuple[int, float]]
    shift: float = 0.0

    def weight(self, inputs: int, constant: float) -> Tensor:
        """Compute w (inputs,) in float64."""
        w = torch.zeros(inputs, dtype=torch.float64)
        for j, (sign, offset) in self.terms.items():
            w[j] = -sign * (offset + constant)
        return w


def projection(j: int, shift: float = 0.0) -> Unit:
    """x[j] + shift."""
    return Unit({j: (1, 0.0)}, shift)


def negation(j: int, shift: float = 0.0) -> Unit:
    """Return the unit −x[j] + shift."""
    return Unit({j: (-1, 0.0)}, shift)


def maximum(j: int, k: int, offset: float = 0.0, sign: int = 1, shift: float = 0.0) -> Unit:
    """Return the unit max(sign x[j] + offset, x[k]) + shift."""
    return Unit({j: (sign, offset), k: (1, 0.0)}, shift)


def enough(bound: float) -> float:
    """Return the smallest power of two that is large enough for K where no |x[j]| and no |offset| is above `bound`.

    With a power of two, adding K and subtracting it again rounds x[j] to a multiple of K's last digit, once: such
    multiples pass further layers without any rounding.
    """
    return 2.0 ** math.ceil(math.log2(4 * bound))


def layer(units: Sequence[Unit], inputs: int, constant: float, dtype: torch.dtype) -> DistLinear:
    """Build a dist layer with one neuron for each unit: (B, inputs) -> (B, len(units)). constant: K of `Unit`."""
    weights = torch.stack([unit.weight(inputs, constant) for unit in units])
    biases = torch.tensor([unit.shift - constant for unit in units], dtype=torch.float64)
    return dist_layer(weights, biases, dtype)


def dist_layer(weight: Tensor, bias: Tensor, dtype: torch.dtype) -> DistLinear:
    """Build a dist layer with these weights (O, I) and biases (O,), which are rounded to `dtype`; in eval mode."""
    with torch.device("meta"):  # no random weights are drawn
        made = DistLinear(weight.shape[1], weight.shape[0], bias=True).to(dtype)
    made = made.to_empty(device="cpu")
    assert made.bias is not None
    with torch.no_grad():
        made.weight.copy_(weight)
        made.bias.copy_(bias)
    return made.eval()
