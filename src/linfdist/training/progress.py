"""The terminal output of a run, and its file of metrics."""

import json
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from ..files import append, write_atomically


class Metrics:
    """The file metrics.jsonl: one JSON object per epoch. A resumed run drops the rows after its checkpoint, and its
    seconds continue where those of the last row ended.
    """

    def __init__(self, path: Path, keep_until_step: int) -> None:
        self.path = path
        kept: list[str] = []
        self.seconds = before = 0.0  # of training, up to the last row that is kept
        self.cpu_seconds = 0.0  # of all cores; earlier versions did not count them
        if path.exists() and keep_until_step > 0:
            for line in path.read_text(encoding="utf-8").splitlines():
                try:
                    row = json.loads(line)
                    if row["step"] > keep_until_step:
                        continue
                    now = float(row["seconds"])
                except (ValueError, KeyError, TypeError):
                    break  # cut off while it was written
                self.seconds += now - before if now >= before else now  # earlier versions began at 0 again
                before = now
                self.cpu_seconds = float(row.get("cpu_seconds") or self.seconds)
                kept.append(json.dumps(row | {"seconds": self.seconds}) + "\n")
        write_atomically(path, "".join(kept))

    def add(self, row: dict[str, Any]) -> None:
        """Append one row."""
        append(self.path, json.dumps(row) + "\n")


class Reporter:
    """A progress bar on a terminal, and one line per epoch there and elsewhere; `show`: whether anything is printed."""

    def __init__(self, name: str, total: int, start: int, batch_size: int, show: bool, quiet: bool) -> None:
        self.name, self.total, self.batch_size = name, total, batch_size
        self.console = Console(file=sys.stdout, soft_wrap=True)
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
        """Move the bar to `step`; `now` is its text."""
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
