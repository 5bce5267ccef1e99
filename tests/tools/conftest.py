"""Rows that somebody might have measured."""

from ..reproduce.conftest import make_row

__all__ = ["make_row"]
