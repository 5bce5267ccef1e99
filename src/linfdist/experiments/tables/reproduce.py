"""Run a table: train and evaluate what is missing, and keep one row per run."""

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import torch

from ... import data, models
from ...errors import closest
from ...evaluation import evaluate, watch
from ...ops.machine import CPU, in_words, synchronise
from ...recipes import Recipe
from ...runs.folder import Run
from ...runs.records import append_records
from ...training import Trainer, train
from ...training.distributed import Workers
from ...training.schedule import State, state_at
from .plan import Planned, Scale, plan
from .rows import TableRow, read_table_rows

TIMES = 4  # the table of per-epoch times
POINTS = 6  # of the p-ramp
STEPS = 3


@dataclass(frozen=True)
class Job:
    """One run: a row of a table with one seed."""

    planned: Planned
    seed: int

    @property
    def name(self) -> str:
        """Name the run; its folder has the same name."""
        return f"{self.planned.name}-seed{self.seed}"


def jobs(table: int, scale: Scale, seeds: int = 1, only: Sequence[str] = ()) -> list[Job]:
    """List all runs of a table, the seeds 0, 1, ... of each row together; only: recipes to restrict it to."""
    rows = plan(table, scale)
    known = [row.name for row in rows]
    for name in only:
        if name not in known:
            raise ValueError(
                f"table {table} has no row {name!r}{closest(name, known)}; its rows are {', '.join(known)}"
            )
    if seeds < 1:
        raise ValueError(f"seeds = {seeds}: must be at least 1")
    count = 1 if table == TIMES else seeds  # times have no seed
    return [Job(row, seed) for row in rows if not only or row.name in only for seed in range(count)]


def missing(wanted: Sequence[Job], rows: Sequence[TableRow]) -> list[Job]:
    """List the jobs that have no row yet."""
    return [
        job for job in wanted if not any(row.belongs_to(job.planned) and row.recipe.seed == job.seed for row in rows)
    ]


def run(
    wanted: Sequence[Job],
    out: Path,
    rows_file: Path,
    data_dir: Path | None = None,
    quiet: bool = False,
    tell: Callable[[str], None] = lambda text: None,
    device: torch.device = CPU,
) -> list[TableRow]:
    """Run the missing jobs one after the other, and return all rows of the file.

    Every run has a folder in `out`, and resumes from its checkpoint if it was stopped.
    """
    left = missing(wanted, read_table_rows(rows_file))
    for number, job in enumerate(left, start=1):
        tell(f"{number} of {len(left)}: {job.name}")
        measure = _times if job.planned.table == TIMES else _accuracies
        append_records(rows_file, [measure(job, out / job.name, data_dir, quiet, device).model_dump(exclude_none=True)])
    return read_table_rows(rows_file)


def _accuracies(job: Job, folder: Path, data_dir: Path | None, quiet: bool, device: torch.device) -> TableRow:
    recipe = job.planned.with_seed(job.seed)
    train(recipe, folder, resume=True, data_dir=data_dir, quiet=quiet, evaluate=watch(recipe), device=device)
    trained = Run(folder)
    trained.check_trained()
    test_set = data.load(recipe.data, "test", data_dir)
    summary = evaluate(
        models.load(folder), test_set, recipe.eps, folder, trained.model_file, attacks=("pgd",),
        show_progress=not quiet, device=device,
    ).summary  # fmt: skip
    return _row(
        job, recipe, device, trained.seconds / 3600, clean=summary["clean"], robust=summary["robust"],
        certified=summary["certified"], train_clean=float(trained.metrics[-1]["train_accuracy"]),
    )  # fmt: skip


def _times(job: Job, folder: Path, data_dir: Path | None, quiet: bool, device: torch.device) -> TableRow:
    recipe = job.planned.with_seed(job.seed)
    times = epoch_times(recipe, data_dir, device)
    by_p = {p: round(seconds, 2) for p, seconds in times.by_p.items()}
    return _row(job, recipe, device, 0.0, seconds_by_p=by_p, seconds_per_epoch=round(times.mean, 2))


def _row(job: Job, recipe: Recipe, device: torch.device, hours: float, **measured: object) -> TableRow:
    known = {
        "table": job.planned.table, "row": job.planned.label, "scale": job.planned.scale, "recipe": recipe,
        "hours": round(hours, 3), "machine": in_words(device), "date": date.today().isoformat(),
    }  # fmt: skip
    return TableRow.model_validate(known | measured)


@dataclass(frozen=True)
class EpochTimes:
    """The seconds per epoch for each p, which is written as text, and their mean over the recipe's epochs."""

    by_p: dict[str, float]
    mean: float


def epoch_times(
    recipe: Recipe, data_dir: Path | None = None, device: torch.device = CPU, steps: int = STEPS
) -> EpochTimes:
    """Time training steps with fresh weights, at e1's p, at the middle of each sixth of the p-ramp, and at p = inf.

    The time of a step depends on p, and a little on the weights: those of a trained network leave the engine somewhat
    more or less to skip.
    """
    train_set = data.load(recipe.data, data_dir=data_dir)
    trainer = Trainer(recipe, train_set, data.info(recipe.data), Workers(device=device))
    per_epoch = trainer.batches.steps_per_epoch
    by_p: dict[str, float] = {}
    total = 0.0
    for epoch, share in schedule_points(recipe):
        state = state_at(recipe, round(epoch * per_epoch), per_epoch)
        name = "inf" if math.isinf(state.p) else f"{state.p:.4g}"
        if name not in by_p:
            by_p[name] = per_epoch * _step_seconds(trainer, state, steps)
        total += share * by_p[name]
    return EpochTimes(by_p, total / recipe.epochs)


def schedule_points(recipe: Recipe) -> list[tuple[float, float]]:
    """Return pairs (epoch, how many epochs it stands for): the middle of e1, of each sixth of e2, and of e3."""
    ramp = [(recipe.e1 + recipe.e2 * (k + 0.5) / POINTS, recipe.e2 / POINTS) for k in range(POINTS)]
    points = [(recipe.e1 / 2, recipe.e1), *ramp, (recipe.e1 + recipe.e2 + recipe.e3 / 2, recipe.e3)]
    return [(epoch, share) for epoch, share in points if share > 0]


def _step_seconds(trainer: Trainer, state: State, steps: int) -> float:
    times = []
    for _ in range(steps + 1):
        start = time.perf_counter()
        trainer.step(state)
        synchronise(trainer.workers.device)
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])  # the first one warms up
