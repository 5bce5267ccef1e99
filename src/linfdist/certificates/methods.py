"""The methods of proof, each stated once: `certify`, `evaluate`, the command line and the errors read them here."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, TypeAlias

from ..errors import closest

if TYPE_CHECKING:  # the command line reads the names without torch
    from torch import Tensor

    from ..models import PixelNet
    from .proofs import Proof

MakesProof: TypeAlias = "Callable[[PixelNet, Tensor, Tensor, float], Proof]"  # of network, x, prediction, tolerance


@dataclass(frozen=True)
class Method:
    """A method of proof for float networks. Every method tries the margin first; no method proves less.

    summary: one line for the command line. after_box: what is tried after the box, in this order; it is called once for
    a network, and computes what depends on the network alone; None for a method that does not use the box. contains:
    other methods, besides margin and box, whose proofs it tries as well. costly: `evaluate` skips it where quick proofs
    are enough. data_sets: whether it is fast enough for a data set. per_pixel: whether eps may be a tensor.
    """

    summary: str
    after_box: "Callable[[PixelNet], list[MakesProof]] | None"
    contains: tuple[str, ...] = ()
    costly: bool = True
    data_sets: bool = True
    per_pixel: bool = True


def _linear(*kinds: tuple[bool, bool]) -> "Callable[[PixelNet], list[MakesProof]]":
    """Return proofs by linear bounds, tried in turn; kinds: `through` and `parallel` of `LinearBounds`."""

    def after_box(network: "PixelNet") -> list[MakesProof]:
        from ..bounds import LinearBounds
        from .margins import by_margins

        return by_margins(*(LinearBounds(network, through, parallel=parallel) for through, parallel in kinds))

    return after_box


def _zonotope(network: "PixelNet") -> list[MakesProof]:
    from ..bounds import ZonotopeBounds
    from .margins import by_margins

    return by_margins(ZonotopeBounds(network))


def _milp(network: "PixelNet") -> list[MakesProof]:
    from .milp import MilpProof

    if network.readout.lipschitz is None:
        raise TypeError(f"method 'milp' is for networks of distances only, not for {type(network).__name__}")
    return [MilpProof]


_LINEAR = "tighter, ReLU networks only"
METHODS: dict[str, Method] = {
    "margin": Method("fastest", None, costly=False, per_pixel=False),
    "box": Method("never weaker", lambda network: [], costly=False),
    "crown-ibp": Method(_LINEAR, _linear((False, False))),
    "crown": Method(_LINEAR, _linear((False, False), (True, False)), ("crown-ibp",)),
    "fast-lin": Method(_LINEAR, _linear((True, True))),
    "zonotope": Method(_LINEAR, _zonotope),
    "milp": Method("exact, tiny plain networks only", _milp, data_sets=False, per_pixel=False),
}


def check_method(name: str, known: Sequence[str] = tuple(METHODS)) -> Method:
    """Return the method of this name; raise ValueError that lists the known names."""
    if name not in known:
        raise ValueError(f"method = {name!r}: must be one of {', '.join(known)}{closest(name, known)}")
    return METHODS[name]


def contained(name: str) -> set[str]:
    """Return the names of the methods whose proofs a method tries as well."""
    method = METHODS[name]
    before = {"margin", "box"} if method.after_box is not None else set[str]()
    return {*before, *method.contains} - {name}


def methods_in_words() -> str:
    """Write one line that says what each method is for."""
    grouped = groupby(METHODS, key=lambda name: METHODS[name].summary)
    return "; ".join(f"{', '.join(names)}: {summary}" for summary, names in grouped) + "."
