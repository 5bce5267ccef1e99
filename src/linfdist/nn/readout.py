"""The contract of readouts: from the features of a network to its logits, with proofs about the largest one."""

import math
from abc import abstractmethod
from fractions import Fraction

from torch import Tensor

from .base import Box, Contract, Graph, Rounding
from .folded import Folded
from .straight import straight


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

    def narrowed(self, box: Box) -> "Readout":
        """A readout with the same bits for features of the box, faster for a few of them; see `LipschitzModule`."""
        return self

    def surrogate(self, x: Tensor, p: float) -> Tensor:
        """Compute the logits of p = inf, with gradients of distances at a finite p; see `LipschitzModule`."""
        return straight(self(x.detach()), self(x, p)) if self.holds_distances else self(x)

    def fold(self, folded: Folded) -> None:
        """Add what the logits are the negation of to a network in pixels, if that consists of distances."""
        raise TypeError(f"a {type(self).__name__} does not consist of distances alone")

    def onnx(self, graph: Graph, x: str, name: str | None = None) -> str:
        """Add the readout's nodes to an ONNX graph; the name of the output, which is `name` if one is given."""
        raise TypeError(f"a {type(self).__name__} cannot be written as an ONNX file")


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

    def onnx(self, graph: Graph, x: str, name: str | None = None) -> str:
        return graph.node("Identity", x, name=name)
