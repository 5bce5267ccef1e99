"""Training: recipe → schedule → loss → optimiser → trainer (in memory) → loop (files, signals, terminal)."""

from .loop import Interrupted, LostWorker, train
from .losses import clipped_hinge_loss, hinge_loss
from .optim import DistAdam
from .schedule import State, state_at, total_steps
from .trainer import Diverged, Progress, Trainer

__all__ = [
    "DistAdam",
    "Diverged",
    "Interrupted",
    "LostWorker",
    "Progress",
    "State",
    "Trainer",
    "clipped_hinge_loss",
    "hinge_loss",
    "state_at",
    "total_steps",
    "train",
]  # fmt: skip
