"""Methods of training conventional networks, one file for each."""

from .adversarial import Adversarial
from .base import Method
from .colt import COLT
from .crown_ibp import CrownIBP, FusedCrownIBP
from .diffai import DiffAI
from .ibp import IBP
from .mtl_ibp import MTLIBP
from .natural import Natural
from .sabr import SABR

METHODS: dict[str, type[Method]] = {
    each.name: each for each in (Natural, Adversarial, IBP, CrownIBP, FusedCrownIBP, SABR, MTLIBP, DiffAI, COLT)
}  # by name

__all__ = [
    "COLT",
    "IBP",
    "METHODS",
    "MTLIBP",
    "SABR",
    "Adversarial",
    "CrownIBP",
    "DiffAI",
    "FusedCrownIBP",
    "Method",
    "Natural",
]
