"""Rows that somebody might have measured."""

from ..tables.reproduce.conftest import make_row

__all__ = ["make_row"]
