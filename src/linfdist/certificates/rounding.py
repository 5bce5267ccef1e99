"""Rounding errors of networks, which these know themselves, and numbers that are never rounded up."""

from fractions import Fraction

from ..models.rounding import FLUSHED, flush_error, rounding_error
from ..nn.base import round_up

__all__ = ["FLUSHED", "flush_error", "round_down", "rounding_error"]


def round_down(exact: Fraction) -> float:
    """The largest float that is not above `exact`."""
    return -round_up(-exact)
