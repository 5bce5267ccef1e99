"""Integer networks: the same answer, bit for bit, on every machine, and certificates without any rounding."""

from .certificate import ExactCertificate, certify
from .file import load, save
from .freeze import freeze
from .network import FrozenLayer, FrozenNet
from .twin import verify

__all__ = ["ExactCertificate", "FrozenLayer", "FrozenNet", "certify", "freeze", "load", "save", "verify"]
