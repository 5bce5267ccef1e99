"""Certificates of float networks: radii within which the prediction is proved not to change."""

from .certificate import Certificate, Certifier, certify, predict
from .checks import on_device
from .proofs import METHODS

__all__ = ["METHODS", "Certificate", "Certifier", "certify", "on_device", "predict"]
