"""Proved radii. Imports models, never training."""

from .certificate import METHODS as METHODS
from .certificate import Certificate as Certificate
from .certificate import certify as certify
from .certificate import predict as predict
