"""Show the progress of an evaluation on the terminal."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType

from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from ..errors import console


class Bar:
    """A progress bar with the rate, which is removed at the end; shown on a terminal only, and only if wanted."""

    def __init__(self, name: str, total: int, done: int, show: bool) -> None:
        screen = console(file=sys.stderr)
        columns = (
            TextColumn("{task.description}"), BarColumn(40 if screen.width >= 120 else 8), TimeRemainingColumn(),
            TextColumn("left"), TextColumn("{task.completed:,}/{task.total:,} images"),
            TextColumn("{task.fields[rate]}"),
        )  # fmt: skip
        self.bar = Progress(*columns, console=screen, transient=True, disable=not (show and screen.is_terminal))
        self.task = self.bar.add_task(name, total=total, completed=done, rate="")
        self.start, self.seen = time.perf_counter(), 0

    def __enter__(self) -> "Bar":
        self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.stop()

    def advance(self, images: int) -> None:
        """Count the images of a finished batch."""
        self.seen += images
        rate = self.seen / max(time.perf_counter() - self.start, 1e-9)
        self.bar.update(self.task, advance=images, rate=f"{rate:.{0 if rate >= 10 else 1}f} img/s")


@contextmanager
def busy(text: str, show: bool) -> Iterator[Callable[[str], None]]:
    """Show on a terminal that work without a count is going on; yield a function that adds to the text."""
    screen = console(file=sys.stderr)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=screen, transient=True, disable=not (show and screen.is_terminal)) as bar:
        task = bar.add_task(text, total=None)
        yield lambda more: bar.update(task, description=f"{text}; {more}")
