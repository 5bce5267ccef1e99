"""The losses that recipes train with: what is declared of each without its formula.

To add one, declare it here, give its keys a field in `Recipe`, and write its class in `linfdist.training.losses`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from .networks import Ending


@dataclass(frozen=True)
class WarmUp:
    """A value that grows linearly during e1, from 0 to the value of a key."""

    key: str


@dataclass(frozen=True)
class Geometric:
    """A value that equals one key's during e1, and moves geometrically to another key's during e2."""

    start: str
    end: str


@dataclass(frozen=True)
class Declaration:
    """The declaration of one loss."""

    summary: str  # what it is, in the comment beside the key `loss` of a recipe
    ending: Ending  # what the network must end in
    required: tuple[str, ...]  # keys that the loss cannot do without; their default in the schema is none
    optional: tuple[str, ...] = ()  # keys that it reads as well; they have defaults
    schedule: Mapping[str, WarmUp | Geometric] = field(default_factory=dict)  # what it is given at each step, by name

    @property
    def keys(self) -> tuple[str, ...]:
        """All keys that the loss reads."""
        return self.required + self.optional


DECLARED: dict[str, Declaration] = {
    "hinge": Declaration("multi-class", "plain", required=("threshold",), optional=("hinge_mean_weight", "safe_share")),
    "ibp": Declaration(
        "cross-entropy of the worst case by IBP (nets with a head)",
        "head",
        required=("kappa", "eps_train"),
        schedule={"eps_train": WarmUp("eps_train")},
    ),
    "ibp_hinge": Declaration(
        "clipped hinge of the worst case by IBP (nets with a head)",
        "head",
        required=("eps_train",),
        schedule={"eps_train": WarmUp("eps_train")},
    ),
    "scaled_ce": Declaration(
        "clipped hinge + scaled cross-entropy",
        "plain",
        required=("threshold", "ce_start", "ce_end"),
        optional=("scale_start", "teachers", "safe_share", "lost_share"),
        schedule={"ce_weight": Geometric("ce_start", "ce_end")},
    ),
}
KEYS = tuple(dict.fromkeys(key for loss in DECLARED.values() for key in loss.keys))  # of any loss
