"""Search settings of several methods in equal time, for the front of clean against certified accuracy.

Optuna (extra `tune`) suggests each setting from the trials before it. Only training images are used: a trial trains
without the held-out ones, and is measured on these.
"""

import hashlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from itertools import count, takewhile
from pathlib import Path
from shlex import quote
from types import ModuleType

import torch

from ... import data
from ...baselines.methods.base import Space
from ...data import Dataset
from ...files import alone
from ...ops.machine import in_words
from ...recipes import Recipe, setting
from ...runs.records import append_records
from ...training import Diverged
from .contenders import Contender, Task, chosen, contenders
from .rows import TuneRow, check_rows_file, plain, read_tune_rows, setting_in_words
from .rules import (
    OURS,
    SHARED,
    SHORTEST_TRIAL,
    TUNED,
    TUNED_TRIALS,
    check_numbers,
    checksum,
    rounded_up_time,
    time_text,
)
from .trials import REHEARSAL, measure, percentages, seconds_per_epoch, train_within, without_held_out

ROWS = "trials.jsonl"
TOO_SHORT = 0.01  # of a trial: what ended sooner tells nothing of the time of an epoch
RANDOM = 4  # trials before the sampler learns from them; the first is declared, the others are drawn
DIGITS = 4  # of the numbers that are suggested


@dataclass(frozen=True)
class Search:
    """What every method gets: a recipe's images, ε, padding and flips, and seconds of training for all of its trials.

    Ours takes the whole recipe. A search with more trials goes on with those of this one, if each has the same time.
    """

    recipe: Recipe
    budget: float
    trials: int = TUNED_TRIALS
    seed: int = 0

    def __post_init__(self) -> None:
        check_numbers(self.budget, self.trials, self.seed)

    @property
    def seconds(self) -> float:
        """The training time of a trial."""
        return self.budget / self.trials

    @property
    def name(self) -> str:
        """Name the search; its pictures have the same name."""
        return f"{self.recipe.name}-{time_text(self.budget)}-trials{self.trials}-seed{self.seed}"


def run(
    search: Search,
    names: Sequence[str],
    out: Path,
    data_dir: Path | None = None,
    tell: Callable[[str], None] = lambda text: None,
    show: bool = False,
) -> list[TuneRow]:
    """Run the missing trials of the named methods, or of `TUNED`; return the rows of the search.

    They are kept in trials.jsonl of the folder `out`; a trial that was stopped starts again. Raises ValueError, before
    anything is trained, that names the methods whose budget is too small, and ImportError without Optuna.
    """
    wanted = searched(names, search.recipe)
    _optuna()
    check_rows_file(out / ROWS, "--out")
    with alone(out / ".lock", f"searches into {out}", "wait for it, or choose another --out"):
        recipe = search.recipe
        images = data.load(recipe.data, "train", data_dir, resize=recipe.resize)
        task, held = without_held_out(Task(images, data.info(recipe.data, recipe.resize), recipe, search.seed))
        courses = [Course(each, search, task, held, out / ROWS, tell, show) for each in wanted]
        _check_budget([course for course in courses if course.unfinished], search)
        for course in courses:
            while course.unfinished:
                course.trial()
    return [row for course in courses for row in course.rows[: search.trials]]


def searched(names: Sequence[str], recipe: Recipe) -> list[Contender]:
    """Return the named contenders; ValueError if one cannot be searched with this recipe."""
    if recipe.networks:
        raise ValueError(
            f"recipe {recipe.name}: start, mean_with and teachers name networks that may have seen the held-out "
            "images, which the search measures on: leave them out"
        )
    wanted = chosen(names or TUNED, 1)
    for each in wanted:
        if not each.space(recipe):
            known = ", ".join(name for name, other in contenders().items() if other.space(recipe))
            raise ValueError(f"methods: nothing is searched of {each.name!r}; choose from {known}")
        if recipe.crop is not None and each.name != OURS:
            raise ValueError(
                f"methods: {each.name!r} cannot take the crop of recipe {recipe.name}: search {OURS} alone, or choose "
                "another recipe"
            )
    return wanted


def suggested(space: Space, told: Sequence[TuneRow], seed: int) -> dict[str, float]:
    """Suggest the next point: the declared one, then random ones, then what the sampler makes of the trials so far.

    It depends on nothing else, so that a search that was stopped goes on as if it had not been.
    """
    if not told:
        return {key: span.first for key, span in space.items()}
    optuna = _optuna()
    spans = {key: optuna.distributions.FloatDistribution(e.low, e.high, log=e.log) for key, e in space.items()}
    digest = hashlib.sha256(f"{seed}/{len(told)}".encode()).digest()
    sampler = optuna.samplers.TPESampler(n_startup_trials=RANDOM, seed=int.from_bytes(digest[:4], "little"))
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)  # it tells of every study that it creates
    try:
        study = optuna.create_study(directions=["maximize", "maximize"], sampler=sampler)
        for row in told:
            values = [row.clean, row.certified]
            study.add_trial(optuna.trial.create_trial(params=row.point, distributions=spans, values=values))
        drawn = study.ask(spans).params
    finally:
        optuna.logging.set_verbosity(level)
    return {key: min(max(float(f"{drawn[key]:.{DIGITS}g}"), e.low), e.high) for key, e in space.items()}


def command(row: TuneRow, recipe: str) -> str:
    """Return the command that trains a network of ours as this trial did, on all training images."""
    values = {**row.setting, "epochs": float(f"{row.epochs:.{DIGITS}g}"), "seed": row.seed}
    return " ".join(["linfdist train", quote(recipe), *(f"--set {quote(setting(*each))}" for each in values.items())])


def _optuna() -> ModuleType:
    try:
        import optuna
    except ImportError as error:
        raise ImportError(f"linfdist tune needs the package optuna ({error}): pip install optuna") from None
    return optuna


class Course:
    """The trials of one method in a search. rows: those that are finished, in their order."""

    def __init__(
        self,
        contender: Contender,
        search: Search,
        task: Task,
        held: Dataset,
        file: Path,
        tell: Callable[[str], None],
        show: bool,
    ) -> None:
        self.contender, self.search, self.task, self.held = contender, search, task, held
        self.file, self.tell, self.show = file, tell, show
        self.space, self.timed = contender.space(search.recipe), 0.0
        self.stated = {  # by all of its rows
            "data": search.recipe.data,
            "eps": search.recipe.eps,
            "shared": checksum(search.recipe, SHARED | {"resize"}),
            "recipe": checksum(search.recipe, contender.takes),
            "method": contender.name,
            "title": contender.title,
            "budget": search.seconds,
            "seed": search.seed,
            "certified_by": ",".join(contender.certified_by),
            "n": len(held),
        }
        found = {row.number: row for row in read_tune_rows(file) if self._is_mine(row)}
        self.rows = [found[number] for number in takewhile(found.__contains__, count())]

    def _is_mine(self, row: TuneRow) -> bool:
        """Return whether this search can have made a row."""
        return (
            all(getattr(row, key) == value for key, value in self.stated.items())
            and row.point.keys() == self.space.keys()
            and all(span.low <= row.point[key] <= span.high for key, span in self.space.items())
            and row.setting == plain(self.contender.setting(self.space, row.point))
        )

    @property
    def unfinished(self) -> bool:
        """Whether trials are missing."""
        return len(self.rows) < self.search.trials

    def next_point(self) -> tuple[dict[str, float], dict[str, object]]:
        """Return what the next trial tries: the numbers that are searched, and the setting that they make."""
        point = suggested(self.space, self.rows, self.search.seed)
        return point, self.contender.setting(self.space, point)

    def epoch_seconds(self) -> float:
        """Return the seconds per epoch of the last trial that came to its end, or of short trainings."""
        for row in reversed(self.rows):
            if row.problem is None and row.seconds >= TOO_SHORT * self.search.seconds:
                return row.seconds / row.epochs
        if not self.timed:
            _, tried = self.next_point()
            self.timed = seconds_per_epoch(self.contender, self.task, tried, REHEARSAL * self.search.seconds)
            self.tell(f"{self.contender.title} ({self.contender.name}): about {rounded_up_time(self.timed)} per epoch")
        return self.timed

    def trial(self) -> None:
        """Train with the next setting, measure the network on the held-out images, and keep the row."""
        (point, tried), seconds = self.next_point(), self.search.seconds
        what = f"trial {len(self.rows) + 1} of {self.search.trials}, {setting_in_words(plain(tried))}"
        epochs, took = 1 / self.contender.steps_per_epoch(self.task, tried), 0.0  # if it diverges at once
        measured, problem = {"clean": 0.0, "pgd20": 0.0, "certified": 0.0}, None
        try:
            network, epochs, took = train_within(
                seconds, self.epoch_seconds(), self.contender, self.task, tried, what, self.tell, self.show
            )
            measured = measure(network, self.held, self.search.recipe.eps, str(self.stated["certified_by"]))
        except Diverged as error:
            problem = str(error)
        shown = problem or f"{percentages(measured)} (held out)"
        self.tell(f"{self.contender.name}, {what}: {epochs:.3g} epochs, {took:.1f} s, {shown}")
        row = TuneRow.model_validate({
            **self.stated, "number": len(self.rows), "point": point, "setting": plain(tried), "epochs": epochs,
            "seconds": round(took, 3), **measured, "problem": problem, "threads": torch.get_num_threads(),
            "machine": in_words(), "date": date.today().isoformat(),
        })  # fmt: skip
        append_records(self.file, [row.model_dump(exclude_none=True)])
        self.rows.append(row)


def _check_budget(courses: Sequence[Course], search: Search) -> None:
    """Raise ValueError if a trial is too short for a tenth of an epoch of a method, or a batch for the images."""
    needs = {}
    for each in courses:
        if each.contender.steps_per_epoch(each.task, each.next_point()[1]) < 1:
            raise ValueError(
                f"{len(each.task.dataset)} images are left to train on, fewer than a batch of {each.contender.name} has"
            )
        with suppress(Diverged):  # its trial says so, and others go on
            needs[each.contender.name] = each.epoch_seconds() * SHORTEST_TRIAL * search.trials
    late = {name: needed for name, needed in needs.items() if needed > search.budget}
    if late:
        raise ValueError(
            f"budget = {time_text(search.budget)}: is too small for a tenth of an epoch in each of {search.trials} "
            f"trials; needed are at least: {', '.join(f'{name} {rounded_up_time(s)}' for name, s in late.items())}. "
            "Give more time or fewer trials, or leave these out (--methods)"
        )
