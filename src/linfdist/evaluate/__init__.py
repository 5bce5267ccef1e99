"""Evaluate a network on a data set: one row per image, then the summary."""

from ..runs.rows import summarise, violations
from .run import Evaluation, evaluate
from .settings import BATCH, METHODS, Shard, parse_attacks, parse_methods
from .violated import Violated
from .watch import watch

__all__ = [
    "BATCH",
    "METHODS",
    "Evaluation",
    "Shard",
    "Violated",
    "evaluate",
    "parse_attacks",
    "parse_methods",
    "summarise",
    "violations",
    "watch",
]
