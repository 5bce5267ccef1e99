"""Integer networks: the same answer, bit for bit, on every machine, and certificates without any rounding.

A head in float64 can follow them, with certificates that hold however it is executed.
"""

from .as_floats import as_floats
from .certificate import ExactCertificate, Undecided, certificates
from .file import FORMATS, load, parse, save
from .freeze import freeze
from .head import FrozenHead
from .network import FrozenLayer, FrozenNet
from .twin import verify

__all__ = [
    "FORMATS", "ExactCertificate", "FrozenHead", "FrozenLayer", "FrozenNet", "Undecided", "as_floats",
    "certificates", "freeze", "load", "parse", "save", "verify",
]  # fmt: skip
