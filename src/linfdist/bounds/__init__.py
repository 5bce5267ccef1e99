"""Bounds of what layers and readouts compute over boxes: with slack for proofs, without it for training.

Each kind of bounds is a registry of one function per class of layers, see `linfdist.nn.Handlers`.
"""

from . import head as _head  # noqa: F401 (its functions are registered)
from .margins import Margins, margins, proofs

__all__ = ["Margins", "margins", "proofs"]
