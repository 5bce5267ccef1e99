"""Methods of training conventional networks, one file for each."""

from .adversarial import Adversarial
from .base import Method
from .crown_ibp import CrownIBP, FusedCrownIBP
from .ibp import IBP
from .mtl_ibp import MTLIBP
from .natural import Natural
from .sabr import SABR

METHODS: dict[str, type[Method]] = {
    each.name: each for each in (Natural, Adversarial, IBP, CrownIBP, FusedCrownIBP, SABR, MTLIBP)
}  # by name

__all__ = ["IBP", "METHODS", "MTLIBP", "SABR", "Adversarial", "CrownIBP", "FusedCrownIBP", "Method", "Natural"]
