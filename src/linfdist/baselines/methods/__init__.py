"""Methods of training conventional networks, one file for each."""

from .base import Method
from .interval import IBP, MTLIBP, SABR, CrownIBP, DiffAI, FusedCrownIBP
from .lipschitz import GroupSortHinge, Sort
from .plain import Adder, Adversarial, Euclidean, Natural, Smoothing
from .relaxed import CAP, COLT, PVT

METHODS: dict[str, type[Method]] = {
    each.name: each
    for each in (
        Natural,
        Adversarial,
        IBP,
        CrownIBP,
        FusedCrownIBP,
        CAP,
        PVT,
        DiffAI,
        COLT,
        GroupSortHinge,
        SABR,
        MTLIBP,
        Sort,
        Adder,
        Euclidean,
        Smoothing,
    )
}  # by name

__all__ = [
    "CAP",
    "COLT",
    "IBP",
    "METHODS",
    "MTLIBP",
    "PVT",
    "SABR",
    "Adder",
    "Adversarial",
    "CrownIBP",
    "DiffAI",
    "Euclidean",
    "FusedCrownIBP",
    "GroupSortHinge",
    "Method",
    "Natural",
    "Smoothing",
    "Sort",
]
