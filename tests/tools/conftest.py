"""Rows that somebody might have measured."""

from ..experiments.tables.conftest import make_row

__all__ = ["make_row"]
