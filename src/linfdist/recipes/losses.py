"""What a recipe knows of each loss: its keys, how they change during training, and which networks it fits.

The formulas are in `linfdist.training.losses`. To add a loss, declare it here, give its keys a field in the schema,
and write its class there.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Ending = Literal["plain", "head"]

ENDINGS: dict[str, Ending] = {"dist_net": "plain", "dist_net_mlp": "head", "conv_dist_net_mlp": "head"}


@dataclass(frozen=True)
class WarmUp:
    """A value that grows linearly from 0 to a key's, over e1."""

    key: str


@dataclass(frozen=True)
class Geometric:
    """A value that stays at one key's over e1, and moves geometrically to another's over e2."""

    start: str
    end: str


@dataclass(frozen=True)
class Declaration:
    """The declaration of one loss."""

    ending: Ending  # what the network must end in
    required: tuple[str, ...]  # keys that the loss cannot do without; their default in the schema is none
    optional: tuple[str, ...] = ()  # keys that it reads as well; they have defaults
    schedule: Mapping[str, WarmUp | Geometric] = field(default_factory=dict)  # what it is given at each step, by name

    @property
    def keys(self) -> tuple[str, ...]:
        """All keys that the loss reads."""
        return self.required + self.optional


DECLARED: dict[str, Declaration] = {
    "hinge": Declaration("plain", required=("threshold",), optional=("hinge_mean_weight", "safe_share")),
    "ibp": Declaration("head", required=("kappa", "eps_train"), schedule={"eps_train": WarmUp("eps_train")}),
    "ibp_hinge": Declaration("head", required=("eps_train",), schedule={"eps_train": WarmUp("eps_train")}),
    "scaled_ce": Declaration(
        "plain",
        required=("threshold", "ce_start", "ce_end"),
        optional=("scale_start", "safe_share", "lost_share"),
        schedule={"ce_weight": Geometric("ce_start", "ce_end")},
    ),
}
KEYS = tuple(dict.fromkeys(key for loss in DECLARED.values() for key in loss.keys))  # of any loss
