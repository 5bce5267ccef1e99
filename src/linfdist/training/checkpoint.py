"""A training in one file, written whole or not at all. The order of the data is not in it: it follows from the seed."""

import os
from pathlib import Path
from typing import Any, TypeGuard

from ..files import excerpt, load_tensors, save_tensors
from .trainer import Sums, Trainer, no_sums


def save(path: Path, trainer: Trainer, sums: Sums) -> None:
    """Write the trainer's tensors and step; `sums` are those of the epoch so far, over all processes."""
    save_tensors(path, trainer.state_dict(), {"step": trainer.done, "sums": sums})


def is_there(path: Path) -> bool:
    """Whether there is anything of that name: a link that leads nowhere is no leave to start afresh."""
    return os.path.lexists(path)


def load(path: Path, trainer: Trainer) -> None:
    """Resume the training in `path`; ValueError if it is not a checkpoint of this very run."""
    if not path.is_file():
        raise ValueError(f"{path} is not a checkpoint: it is no file, or a link that leads to none")
    tensors, header = load_tensors(path)
    step, sums = header.get("step"), header.get("sums")
    if type(step) is not int or not 0 <= step <= trainer.total or not _are_sums(sums):
        what = f"step {excerpt(step)} of {trainer.total}, sums {excerpt(sums)}"
        raise ValueError(f"{path} is not a checkpoint of this run: {what}")
    trainer.load_state(tensors, step, sums if trainer.workers.first else no_sums(), path)


def _are_sums(sums: Any) -> TypeGuard[Sums]:
    if not isinstance(sums, dict) or sums.keys() != no_sums().keys():
        return False
    if not all(type(value) in (float, int) for value in sums.values()):
        return False
    return 0 <= sums["correct"] <= sums["seen"]
