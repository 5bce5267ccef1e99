"""The contract of readouts: from the features of a network to its logits, with proofs about the largest one."""

import math
from abc import abstractmethod
from fractions import Fraction

from torch import Tensor

from .base import Box, Contract, Rounding


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
