"""Proved radii. Imports models, never training."""

from .margin import Margin as Margin
from .margin import margin as margin
