"""Show a run as one page: reports read rows, never models. `plots` draws into matplotlib's axes."""

from . import plots
from .write import write

__all__ = ["plots", "write"]
