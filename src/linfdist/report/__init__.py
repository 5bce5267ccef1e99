"""Show a run as one page: reports read rows, never models."""

from .write import write

__all__ = ["write"]
