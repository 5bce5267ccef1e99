"""Methods of training conventional networks, one file for each."""

from .adder import Adder, Euclidean
from .adversarial import Adversarial
from .base import Method
from .cap import CAP
from .colt import COLT
from .crown_ibp import CrownIBP, FusedCrownIBP
from .diffai import DiffAI
from .group_sort import GroupSortHinge
from .ibp import IBP
from .mtl_ibp import MTLIBP
from .natural import Natural
from .pvt import PVT
from .sabr import SABR
from .smoothing import Smoothing
from .sortnet import Sort

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
