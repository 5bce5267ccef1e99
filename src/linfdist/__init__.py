"""l_inf-dist networks: image classifiers whose robustness is proved."""

from importlib.metadata import PackageNotFoundError, version

from . import data, models, nn
from .models import load
from .ops.box import dist_box, dist_box_conv2d
from .ops.dist import dist, dist_conv2d
from .ops.select import backends

try:
    __version__ = version("linfdist")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0+unknown"

__all__ = [
    "__version__",
    "backends",
    "data",
    "dist",
    "dist_box",
    "dist_box_conv2d",
    "dist_conv2d",
    "load",
    "models",
    "nn",
]
