"""Methods of training conventional networks, one file for each."""

from .base import TrainingMethod
from .interval import IBP, MTLIBP, SABR, CrownIBP, DiffAI, FusedCrownIBP
from .lipschitz import GroupSortHinge, Sort
from .plain import Adder, Adversarial, Euclidean, Natural, Smoothing
from .relaxed import CAP, COLT, PVT

TRAINING_METHODS: dict[str, type[TrainingMethod]] = {
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

__all__ = ["TRAINING_METHODS", "TrainingMethod"]
