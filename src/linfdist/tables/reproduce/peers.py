"""Rows of `linfdist compare`: tables beside the published numbers of the same methods, and panels of a picture."""

from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

from ...eps import down, nearest, up, written
from ..compare.rows import CompareRow, setting_in_words
from ..compare.terms import time_text
from .beside import cited_as
from .compare import NONE, ComparedTable, published_number

_ACCURACY = ("method", "certified", "certified, paper", "clean", "clean, paper", "PGD-20", "strongest, attack")
_COST = ("method", "seconds", "epochs", "seconds, per epoch", "MB", "certify, ms", "chosen")


class Panel(NamedTuple):
    """A part of the picture: its title, and rows that differ in their methods and budgets alone."""

    title: str
    rows: list[CompareRow]


def panels(rows: Sequence[CompareRow]) -> list[Panel]:
    """The rows of each panel of the picture: of one ε, augmentation, number of trials, seed and number of images."""
    return [Panel(f"{question(few[0])}, {few[0].n:,} test images", few) for few in _alike(_latest(rows), _terms)]


def question(row: CompareRow) -> str:
    """What was to be proved."""
    return f"{row.data}, ε = {row.eps}"


def title(rows: Sequence[CompareRow]) -> str:
    """Name a comparison."""
    return question(rows[0]) if _budgets(rows) else f"{question(rows[0])}, {time_text(rows[0].budget)} for each"


def accuracy_table(rows: Sequence[CompareRow]) -> ComparedTable:
    """What is proved, survives and is right, of one comparison, the best certified one first."""
    lines = []
    for row in _ordered(rows):
        published = [published_number(cited_as(row), key) for key in ("certified", "test")]
        certified, clean = (NONE if number is None else str(number) for number in published)
        lines.append([
            _named(row, rows), down(written(row.certified), 2), certified, nearest(row.clean, 2), clean,
            up(written(row.pgd20), 2), up(written(row.strongest), 2),
        ])  # fmt: skip
    return ComparedTable(f"{title(rows)}: percent of {rows[0].n:,} test images", list(_ACCURACY), 1, lines)


def cost_table(rows: Sequence[CompareRow]) -> ComparedTable:
    """What the training with the chosen setting took, and the time to certify an image, in the same order."""
    lines = []
    for row in _ordered(rows):
        memory = NONE if row.memory_mb is None else nearest(row.memory_mb, 0)
        lines.append([
            _named(row, rows), nearest(row.seconds, 1), nearest(row.epochs, 1), nearest(row.seconds_per_epoch, 2),
            memory, nearest(row.certify_ms, 2), setting_in_words(row.chosen),
        ])  # fmt: skip
    return ComparedTable(f"{title(rows)}: the training", list(_COST), 1, lines)


def stated(rows: Sequence[CompareRow]) -> str:
    """Say in one sentence what holds for all rows of a comparison."""
    first, days = rows[0], sorted({row.date for row in rows})
    trials = "one setting" if first.tried == 1 else f"{first.tried} settings tried on held-out images"
    machines = "; ".join(dict.fromkeys(f"{row.machine}, {_threads(row.threads)}" for row in rows))
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    time = "Training time as stated" if _budgets(rows) else f"{time_text(first.budget)} of training for each"
    return f"{time}, {trials}; seed {first.seed}; {machines}; {when}."


def _budgets(rows: Sequence[CompareRow]) -> bool:
    """Whether some had more time than others."""
    return len({row.budget for row in rows}) > 1


def _named(row: CompareRow, rows: Sequence[CompareRow]) -> str:
    """The method's name, with its time where that differs."""
    return f"{row.title}, {time_text(row.budget)}" if _budgets(rows) else row.title


def _terms(row: CompareRow) -> tuple[Hashable, ...]:
    return row.data, row.shared, row.tried, row.seed, row.n


def _latest(rows: Sequence[CompareRow]) -> list[CompareRow]:
    """The last row of each method under the same terms: ours has another one for each recipe that it had."""
    return list({(*_terms(row), row.budget, row.method): row for row in rows}.values())


def _alike(rows: Sequence[CompareRow], key: Callable[[CompareRow], Hashable]) -> list[list[CompareRow]]:
    """The rows by their keys, in the order in which these come first."""
    found: dict[Hashable, list[CompareRow]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return list(found.values())


def _threads(count: int) -> str:
    return f"{count} thread{'s' if count > 1 else ''}"


def _ordered(rows: Sequence[CompareRow]) -> list[CompareRow]:
    return sorted(rows, key=lambda row: (-row.certified, -row.strongest, -row.clean))
