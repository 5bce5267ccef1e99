"""The contract of readouts: from the features of a network to its logits, with proofs about the largest one."""

import math
from abc import abstractmethod
from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

import torch
from torch import Tensor

from .base import Box, Contract, Forms, Graph, Rounding
from .folded import Folded
from .rounding import UP
from .straight import straight

Proves = Callable[[Box, Tensor, float], Tensor]


class Lead(NamedTuple):
    """What is known of the computed logits z over b boxes of features, in each of which one class is to be the best.

    apart: (b, classes) float64: z[best] − z[j] is at least apart[:, j]; infinity for the best class itself, −infinity
    where nothing is known. size: (b,) float64: no |z[j]| is larger; infinity or NaN where nothing is known.
    closer: None, or a function that costs more: closer(wanted) is `apart` with better bounds where wanted (b, classes)
    is True. It remembers nothing of earlier calls.
    """

    apart: Tensor
    size: Tensor
    closer: Callable[[Tensor], Tensor] | None = None


Leads = Callable[[Box, Tensor, float], Lead]


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
        certified by `bounds` alone.
        """

    @abstractmethod
    def forward(self, x: Tensor, p: float | Tensor = math.inf) -> Tensor:
        """Compute the logits (B, classes) of features (B, F)."""

    @abstractmethod
    def bounds(self) -> Proves:
        """Prepare proofs about boxes: what depends on the weights alone is computed here, once.

        The result is called as proves(box, best, off) -> (b,) bool, with a box of computed features, two tensors
        (b, F), and classes best (b,) int64. It says for which boxes class best[k] has the largest computed logit,
        without a tie, for all features in the k-th box. `off` is how far a computed logit, if the readout has a
        Lipschitz constant, or else a computed feature may lie outside the bounds all the same, at either end.
        """

    def leads(self) -> Leads:
        """Prepare bounds of by how much one class leads, with the arguments of `bounds`.

        From these follow bounds of means of several networks, where no network has to prove anything alone.
        """
        raise TypeError(
            f"a {type(self).__name__} does not bound the differences of its logits, so it cannot be a member of a Mean"
        )

    def rounding(self, size: Fraction, unit: Fraction) -> Rounding:
        """Describe the rounding of the logits, as for a layer; only for readouts with a Lipschitz constant."""
        raise TypeError(f"a {type(self).__name__} has no Lipschitz constant, so its rounding is not asked for")

    def narrowed(self, box: Box) -> "Readout":
        """A readout with the same bits for features of the box, faster for a few of them; see `LipschitzModule`."""
        return self

    def pull_back(self, forms: Forms, box: Box) -> Forms:
        """Bound linear forms of the computed logits from below by linear forms of the features; as for a layer."""
        raise TypeError(f"a {type(self).__name__} has no linear bounds, so method 'box' is the best there is for it")

    def surrogate(self, x: Tensor, p: float) -> Tensor:
        """Compute the logits of p = inf, with gradients of distances at a finite p; see `LipschitzModule`."""
        return straight(self(x.detach()), self(x, p)) if self.holds_distances else self(x)

    def fold(self, folded: Folded) -> None:
        """Add what the logits are the negation of to a network in pixels, if that consists of distances."""
        raise TypeError(f"a {type(self).__name__} does not consist of distances alone")

    def onnx(self, graph: Graph, x: str, name: str | None = None) -> str:
        """Add the readout's nodes to an ONNX graph; the name of the output, which is `name` if one is given."""
        raise TypeError(f"a {type(self).__name__} cannot be written as an ONNX file")


def largest_alone(logits: Box, best: Tensor, off: float) -> Tensor:
    """(b,) bool: the lower bound of logit best[k] exceeds all other upper bounds by more than 2 · off.

    logits: (b, classes) each. Bounds that are not finite prove nothing.
    """
    lower, upper = logits.lower.double(), logits.upper.double()
    own = lower.gather(1, best[:, None])
    others = upper.scatter(1, best[:, None], -torch.inf)
    finite = (lower.isfinite() & upper.isfinite()).all(1)
    return (own - others > 2 * off).all(1) & finite


def by_leads(leads: Leads) -> Proves:
    """Proofs from bounds of by how much the best class leads.

    Costly bounds are asked for only where the others have failed, and first about the worst class of each box.
    """

    def proves(box: Box, best: Tensor, off: float) -> Tensor:
        apart, _, closer = leads(box, best, off)
        if closer is not None:
            worst = apart.argmin(1, keepdim=True)  # (b, 1)
            first = torch.zeros_like(apart, dtype=torch.bool).scatter_(1, worst, True)
            apart = closer(first & (apart <= 0))
            hopeful = apart.gather(1, worst) > 0
            apart = torch.maximum(apart, closer(hopeful & (apart <= 0)))
        return (apart > 0).all(1)

    return proves


def lead_of(logits: Box, best: Tensor, off: float) -> Lead:
    """By how much logit best[k] leads, given bounds (b, classes) of all, outside which a logit may lie by `off`."""
    lower, upper = logits.lower.double(), logits.upper.double()
    apart = lower.gather(1, best[:, None]) - upper
    apart = apart - apart.abs() * 2.0**-50 - 2 * off * UP
    size = torch.maximum(lower.abs(), upper.abs()).amax(1) + off
    return Lead(apart.where(apart.isfinite(), -torch.inf).scatter(1, best[:, None], torch.inf), size)


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

    def bounds(self) -> Proves:
        return largest_alone

    def leads(self) -> Leads:
        return lead_of

    def rounding(self, size: Fraction, unit: Fraction) -> Rounding:
        return Rounding.of(size, 0, unit)

    def pull_back(self, forms: Forms, box: Box) -> Forms:
        return forms

    def onnx(self, graph: Graph, x: str, name: str | None = None) -> str:
        return graph.node("Identity", x, name=name)
