"""Certificates of float networks: radii within which the prediction is proved not to change."""

from .certificate import METHODS, Certificate, certify, predict

__all__ = ["METHODS", "Certificate", "certify", "predict"]
