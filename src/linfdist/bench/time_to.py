"""How long a training takes to reach a certified accuracy: `linfdist bench --time-to 90`."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import RenderableType
from rich.table import Table

from linfdist import data
from linfdist.eps import down, written
from linfdist.recipes import Recipe
from linfdist.runs.folder import METRICS, Run
from linfdist.training import Trainer
from linfdist.training.loop import Evaluate


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


def check_level(level: float) -> float:
    """Return the level; ValueError unless it is a percentage."""
    if not 0 < level <= 100:
        raise ValueError(f"the certified accuracy must be a percentage, more than 0 and at most 100, got {level:g}")
    return level


def of_run(folder: Path) -> Course:
    """Read the course of a training, which need not be finished, from its metrics.

    Runs of earlier versions have not written down what their cores did: they count as one core for all their seconds.
    """
    run = Run(folder)
    recipe = run.stored_recipe or {}
    points, seconds, before = [], 0.0, 0.0
    for epoch in run.metrics:
        now = float(epoch["seconds"])
        seconds, before = seconds + (now - before if now >= before else now), now  # early runs began at 0 again
        if epoch.get("certified") is not None:
            cores = epoch.get("cpu_seconds")
            core_seconds = seconds if cores is None else float(cores)
            points.append(Point(float(epoch["epoch"]), seconds / 60, core_seconds / 60, float(epoch["certified"])))
    if not points:
        raise ValueError(
            f"{folder / METRICS} has no certified accuracy of any epoch: give the folder of a run of `linfdist train`"
        )
    name, eps = str(recipe.get("data", "?")), str(recipe.get("eps", "?"))
    return Course(run.name, name, eps, _images(int(recipe.get("holdout") or 0)), tuple(points))


def by_training(
    recipe: Recipe,
    level: float,
    evaluate: Evaluate,
    report: Callable[[Point], None] = lambda point: None,
    data_dir: Path | None = None,
) -> Course:
    """Train until an epoch ends with that accuracy, or the recipe does; nothing is written.

    evaluate: what `linfdist.training.train` takes; its time counts. report: called at the end of each epoch.
    """
    dataset = data.load(recipe.data, split="train", data_dir=data_dir, resize=recipe.resize)
    trainer = Trainer(recipe, dataset, data.info(recipe.data, recipe.resize))
    wall, cores = time.monotonic(), time.process_time()
    points: list[Point] = []
    while not trainer.finished:
        trainer.step()
        if not trainer.epoch_ended:
            continue
        epoch = trainer.end_epoch().epoch
        with trainer.average.applied():
            certified = evaluate(trainer.result.eval(), *trainer.watched)["certified"]
        spent = ((time.monotonic() - wall) / 60, (time.process_time() - cores) / 60)
        points.append(Point(epoch, *spent, certified))
        report(points[-1])
        if certified >= level:
            break
    return Course(recipe.name, recipe.data, recipe.eps, _images(recipe.holdout), tuple(points))


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
