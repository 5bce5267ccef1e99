"""Training: recipe → schedule → loss → optimiser → loop → checkpoint."""

from .loop import Diverged, Interrupted, LostWorker, train

__all__ = ["Diverged", "Interrupted", "LostWorker", "train"]
