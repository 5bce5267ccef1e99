"""Certificates of float networks: radii within which the prediction is proved not to change."""

from .certificate import Certificate, certify, predict
from .certifier import Certifier
from .device import on_device
from .methods import METHODS

__all__ = ["METHODS", "Certificate", "Certifier", "certify", "on_device", "predict"]
