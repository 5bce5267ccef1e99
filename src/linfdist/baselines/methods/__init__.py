"""Methods of training conventional networks, one file for each."""

from .adder import Adder, Euclidean
from .adversarial import Adversarial
from .base import Method
from .crown_ibp import CrownIBP, FusedCrownIBP
from .ibp import IBP
from .mtl_ibp import MTLIBP
from .natural import Natural
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
        SABR,
        MTLIBP,
        Sort,
        Adder,
        Euclidean,
        Smoothing,
    )
}  # by name

__all__ = [
    "IBP",
    "METHODS",
    "MTLIBP",
    "SABR",
    "Adder",
    "Adversarial",
    "CrownIBP",
    "Euclidean",
    "FusedCrownIBP",
    "Method",
    "Natural",
    "Smoothing",
    "Sort",
]
