"""Evaluate a network on a data set: one row per image, then the summary."""

from ..runs.rows import summarise, violations
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
