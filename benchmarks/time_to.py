"""How long a training takes to reach a certified accuracy: `python -m benchmarks.time_to 90 RUN...`."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console, RenderableType
from rich.table import Table

from linfdist.eps import down, written
from linfdist.runs.folder import METRICS, Run


@dataclass(frozen=True)
class Point:
    """What is certified at the end of an epoch, in percent, and how long it took to get there."""

    epoch: float
    minutes: float
    core_minutes: float
    certified: float


@dataclass(frozen=True)
class Course:
    """Certified accuracy in the course of a training; `images`: which ones it is measured on."""

    name: str
    data: str
    eps: str
    images: str
    points: tuple[Point, ...]

    def reached(self, level: float) -> Point | None:
        """Find the first epoch with that accuracy."""
        return next((point for point in self.points if point.certified >= level), None)

    @property
    def best(self) -> Point:
        return max(self.points, key=lambda point: point.certified)


def of_run(folder: Path) -> Course:
    """Read the course of a training, which need not be finished, from its metrics."""
    run = Run(folder)
    recipe = run.stored_recipe or {}
    points = [
        Point(epoch["epoch"], epoch["seconds"] / 60, epoch["cpu_seconds"] / 60, epoch["certified"])
        for epoch in run.metrics
        if epoch.get("certified") is not None
    ]
    if not points:
        raise ValueError(
            f"{folder / METRICS} has no certified accuracy of any epoch: give the folder of a run of `linfdist train`"
        )
    name, eps = str(recipe.get("data", "?")), str(recipe.get("eps", "?"))
    return Course(run.name, name, eps, _images(int(recipe.get("holdout") or 0)), tuple(points))


def _images(holdout: int) -> str:
    return f"{holdout:,} held out" if holdout else "of the training set"


def terminal(courses: Sequence[Course], level: float) -> RenderableType:
    """Return the courses as a table. What is certified is rounded down."""
    table = Table(title=f"time until {level:g} % are certified")
    for heading in ("training", "data", "ε", "images"):
        table.add_column(heading)
    for heading in ("epoch", "minutes", "core-minutes", "certified"):
        table.add_column(heading, justify="right")
    for course in courses:
        point = course.reached(level)
        shown, missed = point or course.best, "" if point else " (best so far)"
        times = (f"{value:.1f}" if point else f"not in {value:.1f}" for value in _spent(course, point))
        certified = f"{down(written(shown.certified), 2)} %{missed}"
        table.add_row(course.name, course.data, course.eps, course.images, f"{shown.epoch:g}", *times, certified)
    return table


def _spent(course: Course, point: Point | None) -> tuple[float, float]:
    shown = point or course.points[-1]
    return shown.minutes, shown.core_minutes


def _percentage(text: str) -> float:
    if not 0 < float(text) <= 100:
        raise argparse.ArgumentTypeError(f"must be a percentage, more than 0 and at most 100, got {text}")
    return float(text)


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("percent", type=_percentage, help="of the held-out images, to be certified")
    options.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="folders of runs of `linfdist train`")
    given = options.parse_args()
    Console().print(terminal([of_run(run) for run in given.runs], given.percent))
