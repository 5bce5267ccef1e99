"""Certificates of float networks: radii within which the prediction is proved not to change."""

from .certificate import METHODS as METHODS
from .certificate import Certificate as Certificate
from .certificate import certify as certify
from .certificate import predict as predict
