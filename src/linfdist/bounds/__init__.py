"""Bounds of what layers and readouts compute over boxes: with slack for proofs, without it for training.

Each kind of bounds is a registry with one function per class of layers, see `linfdist.nn.Handlers`. If you define a
layer of your own, register the functions that you have for it here.
"""

from . import head as _head  # noqa: F401 (registers its functions)
from .forms import Forms, pull_back
from .interval import Margins, bare_box, box_prover, margins, relaxation
from .linear import LinearBounds
from .windows import Windowed, windowed
from .zonotope import Zonotope, ZonotopeBounds, forward_zonotope

__all__ = [
    "Forms",
    "LinearBounds",
    "Margins",
    "Windowed",
    "Zonotope",
    "ZonotopeBounds",
    "bare_box",
    "box_prover",
    "forward_zonotope",
    "margins",
    "pull_back",
    "relaxation",
    "windowed",
]
