"""Evaluate a network on a data set: one row per image, then the summary."""

from typing import TYPE_CHECKING

from ..lazy import lazy_names
from ..runs.rows import summarise, violations

if TYPE_CHECKING:  # what `__getattr__` below imports when it is first used
    from .batch import watch
    from .run import Evaluation, evaluate
    from .settings import BATCH, Shard, for_data_sets, parse_attacks, parse_methods
    from .violated import Violated

__all__ = [
    "BATCH",
    "Evaluation",
    "Shard",
    "Violated",
    "evaluate",
    "for_data_sets",
    "parse_attacks",
    "parse_methods",
    "summarise",
    "violations",
    "watch",
]
__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "watch": "batch",
        **dict.fromkeys(("Evaluation", "evaluate"), "run"),
        **dict.fromkeys(("BATCH", "Shard", "for_data_sets", "parse_attacks", "parse_methods"), "settings"),
        "Violated": "violated",
    },
)
