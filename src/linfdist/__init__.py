"""ℓ∞-dist networks: classifiers whose robustness is proved."""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from . import data, models, nn
from .certificates import Certificate, Certifier, certify, predict
from .models import load, zoo
from .ops.backends import backends
from .ops.dist import dist, dist_box, dist_box_conv2d, dist_conv2d

if TYPE_CHECKING:
    from .evaluation import evaluate
    from .training.memory import train

try:
    __version__ = version("linfdist")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0+unknown"

# Imported when they are first used: loading and certifying a network need none of them, and some need an extra.
_FUNCTIONS = {"evaluate": ".evaluation", "train": ".training.memory"}
_SUBMODULES = (
    "attacks",
    "baselines",
    "bounds",
    "certificates",
    "evaluation",
    "exact",
    "export",
    "recipes",
    "report",
    "sklearn",
    "theory",
    "training",
)

__all__ = [
    "Certificate",
    "Certifier",
    "__version__",
    "backends",
    "certify",
    "data",
    "dist",
    "dist_box",
    "dist_box_conv2d",
    "dist_conv2d",
    "evaluate",
    "load",
    "models",
    "nn",
    "predict",
    "train",
    "zoo",
]


def __getattr__(name: str) -> Any:
    """Import `evaluate`, `train` and the submodules that are not imported at once."""
    if name in _FUNCTIONS:
        return getattr(import_module(_FUNCTIONS[name], __name__), name)
    if name in _SUBMODULES:
        return import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *_SUBMODULES})
