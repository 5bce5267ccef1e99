"""l_inf-dist networks: image classifiers whose robustness is proved."""

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from . import data, models, nn, zoo
from .certificates import Certificate, certify, predict
from .ops.box import dist_box, dist_box_conv2d
from .ops.dist import dist, dist_conv2d
from .ops.select import backends
from .zoo import load

if TYPE_CHECKING:
    from .training.memory import train

try:
    __version__ = version("linfdist")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0+unknown"

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
    "train",
    "zoo",
]


def __getattr__(name: str) -> Any:
    """Import `train` when it is first used: it needs more packages than a trained network does."""
    if name == "train":
        from .training.memory import train

        return train
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
