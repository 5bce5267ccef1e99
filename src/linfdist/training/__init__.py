"""Training: recipe → schedule → loss → optimiser → trainer (in memory) → loop (files, signals, terminal)."""

from .loop import Interrupted, LostWorker, train
from .trainer import Diverged, Progress, Trainer

__all__ = ["Diverged", "Interrupted", "LostWorker", "Progress", "Trainer", "train"]
