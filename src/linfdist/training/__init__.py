"""Training: recipe → schedule → loss → optimiser → trainer (in memory) → loop (files, signals, terminal)."""

from .distributed import JobError, LostWorker
from .loop import Interrupted, train
from .losses import clipped_hinge_loss, hinge_loss
from .optim import DistAdam
from .schedule import State, state_at, total_steps
from .trainer import Diverged, Progress, Trainer

__all__ = [
    "DistAdam",
    "Diverged",
    "Interrupted",
    "JobError",
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
