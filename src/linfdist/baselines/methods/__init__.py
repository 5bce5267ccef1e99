"""Methods of training conventional networks, one file for each."""

from .adversarial import Adversarial
from .base import Method
from .cap import CAP
from .crown_ibp import CrownIBP, FusedCrownIBP
from .group_sort import GroupSortHinge
from .ibp import IBP
from .mtl_ibp import MTLIBP
from .natural import Natural
from .pvt import PVT
from .sabr import SABR

METHODS: dict[str, type[Method]] = {
    each.name: each
    for each in (Natural, Adversarial, IBP, CrownIBP, FusedCrownIBP, CAP, PVT, GroupSortHinge, SABR, MTLIBP)
}  # by name

__all__ = [
    "CAP",
    "IBP",
    "METHODS",
    "MTLIBP",
    "PVT",
    "SABR",
    "Adversarial",
    "CrownIBP",
    "FusedCrownIBP",
    "GroupSortHinge",
    "Method",
    "Natural",
]
