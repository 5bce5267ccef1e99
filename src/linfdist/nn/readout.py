"""Readouts: from the features of a network to its logits."""

import math
from abc import abstractmethod
from fractions import Fraction

import torch
from torch import Tensor, nn

from .base import Box, Contract, Rounding, Shape
from .dist_linear import Distances, distance_rounding
from .rounding import mean_rounding, mean_slack, widened


class Readout(Contract):
    """The last part of a network: features (B, F) -> logits (B, classes)."""

    holds_distances: bool = False  # see `LipschitzModule`

    @property
    @abstractmethod
    def classes(self) -> int:
        """How many logits there are."""

    @property
    @abstractmethod
    def lipschitz(self) -> float | None:
        """The ℓ∞ Lipschitz constant of the logits in the features, never rounded down; None if there is no useful one.

        A readout with a constant also has a `rounding`, and is certified by its margin in closed form. One without is
        certified by bounds of its margins alone.
        """

    @abstractmethod
    def forward(self, x: Tensor, p: float | Tensor = math.inf) -> Tensor:
        """Compute the logits (B, classes) of features (B, F)."""

    def forward_box(self, box: Box) -> Box:
        """Bound the computed logits (b, classes) at p = inf over boxes of features; as for a layer.

        A readout whose logits move together has closer bounds of their differences: see `linfdist.bounds.margins`.
        """
        raise TypeError(f"a {type(self).__name__} has no bounds of its logits, so nothing can be certified with it")

    def rounding(self, size: Fraction, unit: Fraction) -> Rounding:
        """Describe the rounding of the logits, as for a layer; only for readouts with a Lipschitz constant."""
        raise TypeError(f"a {type(self).__name__} has no Lipschitz constant, so its rounding is not asked for")


class Logits(Readout):
    """The features themselves are the logits: what a stack of layers is read out by."""

    repeatable = True
    lipschitz = 1.0

    def __init__(self, classes: int) -> None:
        super().__init__()
        self._classes = classes

    @property
    def classes(self) -> int:
        return self._classes

    def forward(self, x: Tensor, p: float | Tensor = math.inf) -> Tensor:
        return x

    def forward_box(self, box: Box) -> Box:
        return box

    def rounding(self, size: Fraction, unit: Fraction) -> Rounding:
        return Rounding.of(size, 0, unit)


class NearestClass(Distances, Readout):
    """g(x) = −(‖x − w‖ + b), the last layer of Def. 3.2, negated; with several neurons per class, minus their mean.

    z[b, c] = −mean_j (‖x[b] − w[c n + j]‖_p + b[c n + j]),  j < n = per_class        x (B, F) -> (B, classes)

    A mean moves by no more than what it is the mean of, so the readout is 1-Lipschitz whatever n is. Weights start as
    N(0, 1), biases as 0. With n > 1 sums are rounded, in an order that is not known: bounds get a slack.
    """

    lipschitz = 1.0
    holds_distances = True

    def __init__(self, in_features: int, classes: int, per_class: int = 1) -> None:
        super().__init__()
        self.in_features, self.per_class = in_features, per_class
        self.weight = nn.Parameter(torch.randn(classes * per_class, in_features))
        self.bias = nn.Parameter(torch.zeros(classes * per_class))

    @property
    def repeatable(self) -> bool:  # type: ignore[override]
        """Whether no sum is rounded: that of several neurons per class is."""
        return self.per_class == 1

    @property
    def classes(self) -> int:
        return len(self.weight) // self.per_class

    def forward(self, x: Tensor, p: float | Tensor = math.inf) -> Tensor:
        y = self.distances(x, p) + self.bias  # (B, classes * per_class)
        return -y if self.per_class == 1 else -self._by_class(y).mean(2)

    def forward_box(self, box: Box) -> Box:
        """Bounds (b, classes) of the computed logits."""
        near, far = (side + self.bias for side in self.distances_box(box))
        if self.per_class == 1:
            return Box(-far, -near)
        low, high = self._by_class(-far.double()), self._by_class(-near.double())
        slack = mean_slack(torch.maximum(low.abs(), high.abs()).mean(2), self.per_class, near.dtype)
        return widened(low.mean(2), high.mean(2), slack, near.dtype)

    def rounding(self, size: Fraction, unit: Fraction) -> Rounding:
        """Describe the rounding of the distances, and that of their mean if there are several per class."""
        distances = distance_rounding(self.weight, self.bias, size, unit)
        if self.per_class == 1:
            return distances
        mean = mean_rounding(distances.size, self.per_class, unit)
        return mean._replace(error=distances.error + mean.error)

    def terms(self, shape: Shape) -> int:
        return self.weight.numel()

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.classes}, per_class={self.per_class}"

    def _by_class(self, y: Tensor) -> Tensor:
        return y.unflatten(1, (self.classes, self.per_class))
