"""Certificates of float networks: radii within which the prediction is proved not to change."""

from .certificate import METHODS, Certificate, certify, predict
from .device import on_device

__all__ = ["METHODS", "Certificate", "certify", "on_device", "predict"]
