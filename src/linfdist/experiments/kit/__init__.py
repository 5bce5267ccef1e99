"""A benchmark for verifiers whose answers are known: networks, properties, and a proof or a witness for each."""

from .check import check
from .generate import DEFAULT, SIZES, generate

__all__ = ["DEFAULT", "SIZES", "check", "generate"]
