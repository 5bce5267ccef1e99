"""l_inf-dist networks: image classifiers whose robustness is proved."""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType

from . import data, models, nn, zoo
from .certificates import Certificate, certify, predict
from .ops.box import dist_box, dist_box_conv2d
from .ops.dist import dist, dist_conv2d
from .ops.select import backends
from .zoo import load

try:
    __version__ = version("linfdist")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0+unknown"

_LAZY = ("attacks", "certificates", "evaluate", "exact", "export", "recipes", "report", "training")


def __getattr__(name: str) -> ModuleType:
    """Load the other submodules when they are first asked for: some need extras, all take their time."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f".{name}", __name__)


def __dir__() -> list[str]:
    return sorted({*__all__, *_LAZY})


__all__ = [
    "Certificate",
    "__version__",
    "backends",
    "certify",
    "data",
    "dist",
    "dist_box",
    "dist_box_conv2d",
    "dist_conv2d",
    "load",
    "models",
    "nn",
    "predict",
    "zoo",
]
