"""l_inf-dist networks: image classifiers whose robustness is proved."""

from importlib.metadata import PackageNotFoundError, version

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
