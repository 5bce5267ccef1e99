"""A training in one file, written whole or not at all. The order of the data follows from the seed.

It is in the file only if some images are visited less often than others: see `Visits`.
"""

import os
from pathlib import Path
from typing import Any, TypeGuard

from ..files import excerpt, load_tensors, save_tensors
from .trainer import Sums, Trainer, no_sums


def save(path: Path, trainer: Trainer) -> None:
    """Write the trainer's tensors, its step, its sums of the epoch so far, and how many processes have made them."""
    header = {"step": trainer.done, "sums": trainer.sums, "processes": trainer.workers.world}
    save_tensors(path, trainer.state_dict(), header)


def is_there(path: Path) -> bool:
    """Whether there is anything of that name: a link that leads nowhere is no leave to start afresh."""
    return os.path.lexists(path)


def load(path: Path, trainer: Trainer) -> int:
    """Resume the training in `path`; ValueError if it is not a checkpoint of this very run.

    Returns how many processes have written it. Older files do not say: it is then the number of today's processes.
    """
    if not path.is_file():
        raise ValueError(f"{path} is not a checkpoint: it is no file, or a link that leads to none")
    tensors, header = load_tensors(path)
    step, sums, processes = header.get("step"), header.get("sums"), header.get("processes", trainer.workers.world)
    if type(step) is not int or not 0 <= step <= trainer.total or not _are_sums(sums):
        what = f"step {excerpt(step)} of {trainer.total}, sums {excerpt(sums)}"
        raise ValueError(f"{path} is not a checkpoint of this run: {what}")
    if type(processes) is not int or processes < 1:
        raise ValueError(f"{path} is not a checkpoint of this run: {excerpt(processes)} processes")
    trainer.load_state(tensors, step, sums, path)
    return processes


def _are_sums(sums: Any) -> TypeGuard[Sums]:
    if not isinstance(sums, dict) or sums.keys() != no_sums().keys():
        return False
    if not all(type(value) in (float, int) for value in sums.values()):
        return False
    return 0 <= sums["correct"] <= sums["seen"]
