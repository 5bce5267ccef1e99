"""The fully connected ℓ∞-dist layer, and the distances that it shares with readouts."""

import copy
import math
from fractions import Fraction
from typing import TypeVar

import torch
from torch import Tensor, nn

from ..ops.cached_lists import FEW_ROWS, CachedLists, make_lists
from ..ops.dist import dist, dist_box
from .base import Box, LipschitzModule, Rounding, Shape
from .rounding import largest

Layer = TypeVar("Layer", bound="Distances")


class Distances(nn.Module):
    """Distances to the rows of `weight` (O, I). `_lists` are for a layer whose weights nobody can change any more."""

    weight: nn.Parameter
    _lists: CachedLists | None = None

    def distances(self, x: Tensor, p: float | Tensor) -> Tensor:
        """x (..., I) -> (..., O)"""
        if self._lists and _few(x) and not isinstance(p, Tensor) and p == math.inf:
            return self._lists.dist(x)
        return dist(x, self.weight, p)

    def distances_box(self, box: Box) -> tuple[Tensor, Tensor]:
        """The smallest and the largest distances over a box, (..., O) each."""
        if self._lists and _few(box.lower):
            return self._lists.dist_box(*box)
        return dist_box(box.lower, box.upper, self.weight)

    def with_lists(self: Layer, box: Box) -> Layer:
        """The same layer, with the same tensors, for inputs of the box (1, I): see `models.composed`."""
        lists = make_lists(box.lower[0], box.upper[0], self.weight) if box.lower.dim() == 2 else None
        if lists is None:
            return self
        narrowed = copy.copy(self)
        narrowed._lists = lists
        return narrowed


def _few(x: Tensor) -> bool:
    return x.dim() == 2 and len(x) < FEW_ROWS and not torch.is_grad_enabled()


IDENTITY = -10.0  # C₀ of Section 5.3


class DistLinear(Distances, LipschitzModule):
    """Distances to the rows of a weight matrix: the neurons of eq. (2).

    y[..., k] = ‖x − w[k]‖_p (+ b[k])        x (..., in_features) -> (..., out_features)

    Weights start as N(0, 1), biases as 0. `identity_init` (Section 5.3) then sets w[k, k mod in_features] = -10: neuron
    k starts as |x + 10| = x + 10 of one input, the largest distance by far, and the mean shift removes the 10. This
    needs in_features <= out_features, or inputs would be lost.
    """

    repeatable = True
    lipschitz = 1.0  # Fact 3.4, at p = inf only
    holds_distances = True

    def __init__(self, in_features: int, out_features: int, bias: bool = False, identity_init: bool = False) -> None:
        super().__init__()
        if identity_init and in_features > out_features:
            raise ValueError(
                f"identity_init needs in_features <= out_features, got {in_features} > {out_features}: "
                "the layer cannot pass on all its inputs"
            )
        self.in_features, self.out_features = in_features, out_features
        self.weight = nn.Parameter(torch.randn(out_features, in_features))
        self.bias = nn.Parameter(torch.zeros(out_features)) if bias else None
        if identity_init:
            k = torch.arange(out_features)
            with torch.no_grad():
                self.weight[k, k % in_features] = IDENTITY

    def forward(self, x: Tensor, p: float | Tensor = math.inf) -> Tensor:
        y = self.distances(x, p)  # (..., O)
        return y if self.bias is None else y + self.bias

    def forward_box(self, box: Box) -> Box:
        """Tight for each neuron (Appendix B), and without slack: see `dist_box`; adding a bias is monotone."""
        near, far = self.distances_box(box)  # (..., O) each
        return Box(near, far) if self.bias is None else Box(near + self.bias, far + self.bias)

    def output_shape(self, shape: Shape) -> Shape:
        return (*shape[:-1], self.out_features)

    def rounding(self, size: Fraction, unit: Fraction) -> Rounding:
        """The subtraction and the bias are rounded; |·| and max are exact."""
        return distance_rounding(self.weight, self.bias, size, unit)

    def terms(self, shape: Shape) -> int:
        return self.weight.numel()

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}, bias={self.bias is not None}"


def distance_rounding(weight: Tensor, bias: Tensor | None, size: Fraction, unit: Fraction) -> Rounding:
    """Describe the rounding of a dist layer: one subtraction, and one addition if there is a bias."""
    reach = size + largest(weight) + (0 if bias is None else largest(bias))
    return Rounding.of(reach, 1 + (bias is not None), unit)
