"""Training: recipe → schedule → loss → optimiser → loop → checkpoint."""

from .loop import Diverged, Interrupted, train

__all__ = ["Diverged", "Interrupted", "train"]
