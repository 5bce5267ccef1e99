"""The methods of proof, each stated once: `certify`, `evaluate`, the command line and the errors read them here."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

from torch import Tensor

from ..bounds import LinearBounds, ZonotopeBounds
from ..models import PixelNet
from .proofs import MarginBounds, MarginProof, Proof, largest_of

MakesProof = Callable[[PixelNet, Tensor, Tensor, float], Proof]  # of network, x, prediction, tolerance


@dataclass(frozen=True)
class Method:
    """A method of proof for float networks. Every method tries the margin first; no method proves less.

    summary: one line for the command line. after_box: what is tried after the box, in this order; it is called once for
    a network, and computes what depends on the network alone; None for a method that does without the box. contains:
    other methods, besides margin and box, whose proofs it tries as well. costly: `evaluate` may spare it where quick
    proofs suffice. data_sets: whether it is fast enough for a data set. per_pixel: whether eps may be a tensor.
    integers: whether exact networks have it, too.
    """

    summary: str
    after_box: Callable[[PixelNet], list[MakesProof]] | None
    contains: tuple[str, ...] = ()
    costly: bool = True
    data_sets: bool = True
    per_pixel: bool = True
    integers: bool = False


class MilpProof(Proof):
    """The exact radius of a tiny network."""

    closed_form = True

    def __init__(self, network: PixelNet, x: Tensor, prediction: Tensor, tolerance: float) -> None:
        from .milp import radii  # its solver is an extra

        super().__init__(prediction, radii(network, x).to(x.device))

    def proves(self, rows: Tensor, eps: Tensor) -> Tensor:
        radius = self.radius[rows]
        return (radius > 0) & (radius >= largest_of(eps).clamp(max=1.0))  # a radius of 1 holds all images


def _margins(*bounds: MarginBounds) -> list[MakesProof]:
    """Return proofs by lower bounds of margins, which are tried in turn."""

    def by(each: MarginBounds) -> MakesProof:
        return lambda network, x, prediction, tolerance: MarginProof(network, x, prediction, each, tolerance)

    return [by(each) for each in bounds]


def _milp(network: PixelNet) -> list[MakesProof]:
    if network.readout.lipschitz is None:
        raise TypeError(f"method 'milp' is for networks of distances only, not for {type(network).__name__}")
    return [MilpProof]


_LINEAR = "tighter, ReLU networks only"
METHODS: dict[str, Method] = {
    "margin": Method("fastest", None, costly=False, per_pixel=False, integers=True),
    "box": Method("never weaker", lambda network: [], costly=False, integers=True),
    "crown-ibp": Method(_LINEAR, lambda network: _margins(LinearBounds(network, False))),
    "crown": Method(
        _LINEAR, lambda network: _margins(LinearBounds(network, False), LinearBounds(network, True)), ("crown-ibp",)
    ),
    "fast-lin": Method(_LINEAR, lambda network: _margins(LinearBounds(network, True, parallel=True))),
    "zonotope": Method(_LINEAR, lambda network: _margins(ZonotopeBounds(network))),
    "milp": Method("exact, tiny plain networks only", _milp, data_sets=False, per_pixel=False),
}


def check_method(name: str, known: Sequence[str] = tuple(METHODS)) -> Method:
    """Return the method of a name; ValueError lists the names that are known."""
    if name not in known:
        raise ValueError(f"method = {name!r}: must be one of {', '.join(known)}")
    return METHODS[name]


def contained(name: str) -> set[str]:
    """Return the names of the methods whose proofs a method tries as well."""
    method = METHODS[name]
    before = {"margin", "box"} if method.after_box is not None else set[str]()
    return {*before, *method.contains} - {name}


def in_words() -> str:
    """Say in one line what each method is for."""
    grouped = groupby(METHODS, key=lambda name: METHODS[name].summary)
    return "; ".join(f"{', '.join(names)}: {summary}" for summary, names in grouped) + "."
