"""Methods of training conventional networks, one file for each."""

from .adversarial import Adversarial
from .base import Method
from .crown_ibp import CrownIBP, FusedCrownIBP
from .ibp import IBP
from .natural import Natural

METHODS: dict[str, type[Method]] = {
    each.name: each for each in (Natural, Adversarial, IBP, CrownIBP, FusedCrownIBP)
}  # by name

__all__ = ["IBP", "METHODS", "Adversarial", "CrownIBP", "FusedCrownIBP", "Method", "Natural"]
