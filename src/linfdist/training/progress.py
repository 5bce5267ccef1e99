"""The output of a run in progress: its checkpoint, its metrics, and lines on the terminal.

A checkpoint is one file, written whole or not at all. It holds the order of the data only if some images are drawn less
often than others (`Sampler`); otherwise the order follows from the seed.
"""

import json
import math
import os
import sys
import time
from pathlib import Path
from typing import Any, TypeGuard

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from ..errors import console
from ..files import append, excerpt, load_tensors, save_tensors, write_atomically
from ..runs.folder import read_metrics
from .trainer import Sums, Trainer, no_sums


class Metrics:
    """Write the file metrics.jsonl: one JSON object per epoch.

    A resumed run drops the rows after its checkpoint, and its seconds continue where those of the last row ended.
    """

    def __init__(self, path: Path, keep_until_step: int) -> None:
        self.path = path
        rows = read_metrics(path)[0] if keep_until_step > 0 else ()  # a last line that was cut off is left out
        kept = [row for row in rows if row["step"] <= keep_until_step]
        last = kept[-1] if kept else {"seconds": 0.0, "cpu_seconds": 0.0}
        if last.get("cpu_seconds") is None:
            raise ValueError(f"{path} is damaged: the epoch of step {last['step']} has no cpu_seconds")
        # of training, and of all its cores, up to the last row that is kept
        self.seconds, self.cpu_seconds = float(last["seconds"]), float(last["cpu_seconds"])
        write_atomically(path, "".join(json.dumps(row) + "\n" for row in kept))

    def add(self, row: dict[str, Any]) -> None:
        """Append one row. Numbers that are not finite become null, because JSON has none."""
        unknown = {key: None for key, value in row.items() if isinstance(value, float) and not math.isfinite(value)}
        append(self.path, json.dumps(row | unknown) + "\n")


class Reporter:
    """A progress bar on a terminal, and one line per epoch there and elsewhere; `show`: whether anything is printed."""

    def __init__(self, name: str, total: int, start: int, batch_size: int, show: bool, quiet: bool) -> None:
        self.name, self.total, self.batch_size = name, total, batch_size
        self.console = console(file=sys.stdout, soft_wrap=True)
        self.lines = show
        self.bar = None
        if show and not quiet and self.console.is_terminal:
            wide = self.console.width >= 120  # else the name and the bar make room for what tells how it goes
            columns = (
                *((TextColumn("{task.description}"), BarColumn()) if wide else ()),
                TextColumn("{task.percentage:>3.0f} %"), TimeRemainingColumn(), TextColumn("left"),
                TextColumn("{task.fields[now]}"),
            )  # fmt: skip
            self.bar = Progress(*columns, console=self.console, transient=True)
            self.bar.start()
            self.task = self.bar.add_task(name, total=total, completed=start, now="")
        self._last = (time.perf_counter(), start)

    def step(self, step: int, now: str) -> None:
        """Move the bar to `step`; `now` is the text beside it."""
        if self.bar is not None:
            self.bar.update(self.task, completed=step, now=f"{now}  {self.rate(step):.0f} img/s")

    def rate(self, step: int) -> float:
        """Return the images per second since the last line."""
        elapsed = time.perf_counter() - self._last[0]
        return (step - self._last[1]) * self.batch_size / elapsed if elapsed > 0 else 0.0

    def line(self, step: int, text: str) -> None:
        """Print a line that stays on the screen."""
        if self.lines:
            self.console.print(text, highlight=False)
        self._last = (time.perf_counter(), step)

    def close(self) -> None:
        """Remove the bar."""
        if self.bar is not None:
            self.bar.stop()


def save_checkpoint(path: Path, trainer: Trainer) -> None:
    """Write the trainer's tensors, step and sums of the epoch so far, and the number of processes."""
    header = {"step": trainer.done, "sums": trainer.sums, "processes": trainer.workers.world}
    if trainer.teachers is not None:
        header["teachers"] = trainer.teachers.checksum
    save_tensors(path, trainer.state_dict(), header)


def has_checkpoint(path: Path) -> bool:
    """Return whether the name exists, even as a broken link: then a run must not start afresh."""
    return os.path.lexists(path)


def load_checkpoint(path: Path, trainer: Trainer) -> int:
    """Resume the training in `path`; raise ValueError unless it is a checkpoint of this very run.

    Returns how many processes have written it.
    """
    if not path.is_file():
        raise ValueError(f"{path} is not a checkpoint: it is not a file, or it is a broken link")
    tensors, header = load_tensors(path)
    step, sums, processes = header.get("step"), header.get("sums"), header.get("processes")
    if type(step) is not int or not 0 <= step <= trainer.total or not _are_sums(sums):
        what = f"step {excerpt(step)} of {trainer.total}, sums {excerpt(sums)}"
        raise ValueError(f"{path} is not a checkpoint of this run: {what}")
    if type(processes) is not int or processes < 1:
        raise ValueError(f"{path} is not a checkpoint of this run: {excerpt(processes)} processes")
    if trainer.teachers is not None and header.get("teachers") != trainer.teachers.checksum:
        raise ValueError(f"{path} has learned from other networks than {trainer.recipe.teachers} are now")
    trainer.load_state(tensors, step, sums, path)
    return processes


def _are_sums(sums: Any) -> TypeGuard[Sums]:
    if not isinstance(sums, dict) or sums.keys() != no_sums().keys():
        return False
    if not all(type(value) in (float, int) for value in sums.values()):
        return False
    return 0 <= sums["correct"] <= sums["seen"]
