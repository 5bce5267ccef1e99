"""Tables as text, for the terminal and for pages alike: the paper's with our numbers, and methods side by side."""

import statistics
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple, TypeVar

from ...eps import down, nearest, parse_eps, up, written
from ...recipes.networks import NETWORKS
from ...report.plots.fronts import front
from ...report.published import Result, tables
from .plan import Scale, plan
from .rows import CompareRow, TableRow, TuneRow, setting_in_words
from .rules import time_text

NONE = "–"
AnyRow = TypeVar("AnyRow", CompareRow, TuneRow)
PEERS = (1, 4, 9)  # the tables with methods that `linfdist compare` runs

_ACCURACY = ("method", "certified", "certified, paper", "clean", "clean, paper", "PGD-20", "strongest, attack")
_COST = ("method", "seconds", "epochs", "seconds, per epoch", "MB", "certify, ms", "chosen")


class Quantity(NamedTuple):
    """A pair of columns: the names of the published and of the measured number, and how it is rounded.

    What is proved is never rounded up, what survives attacks never down. peer: its name in rows of `linfdist compare`.
    """

    heading: str
    published: str
    measured: str
    rounded: Callable[[Fraction | float, int], str]
    peer: str = ""


_ACCURACIES = (
    Quantity("clean", "test", "clean", nearest, "clean"),
    Quantity("robust", "robust", "robust", up, "pgd20"),
    Quantity("certified", "certified", "certified", down, "certified"),
)
_QUANTITIES: dict[int, tuple[Quantity, ...]] = {
    4: (Quantity("seconds per epoch", "seconds_per_epoch", "seconds_per_epoch", nearest, "seconds_per_epoch"),),
    7: (
        Quantity("train", "train", "train_clean", nearest),
        Quantity("test", "test", "clean", nearest),
        Quantity("certified", "certified", "certified", down),
    ),
}


@dataclass(frozen=True)
class TextTable:
    """A table of text cells: the first `words` columns hold words, the others numbers."""

    title: str
    headings: list[str]
    words: int
    lines: list[list[str]]


def paper_table(table: int, scale: Scale, rows: Sequence[TableRow], peers: Sequence[CompareRow] = ()) -> TextTable:
    """Lay out all published rows in the paper's order, baselines marked as cited, then those that only we have.

    Ours are means over the runs, with the standard deviation if there are several. peers: rows of `linfdist compare`,
    which are shown beside the baselines of Tables 1, 4 and 9.
    """
    published, planned = tables()[table], plan(table, scale)
    quantities = _QUANTITIES.get(table, _ACCURACIES)
    lines = []
    for result in published.rows:
        ours = next((each for each in planned if each.published is result), None)
        mine = [row for row in rows if ours is not None and row.belongs_to(ours)]
        cited = peers_of(result, peers) if table in PEERS and scale == "laptop" else []
        lines.append(_line(result.data, _name(result), _network(result.model), result, quantities, mine, cited))
    for own in (each for each in planned if each.published is None):
        mine = [row for row in rows if row.belongs_to(own)]
        lines.append(_line(own.recipe.data, own.label, _network(own.recipe.model), None, quantities, mine))
    headings = ["data", "row", "network"]
    headings += [f"{each.heading}, {whose}" for each in quantities for whose in ("paper", "here")] + ["runs"]
    kept = [k for k in range(len(headings)) if k > 2 or len({line[k] for line in lines}) > 1]
    kept = [k for k in kept if k != 2 or table == 3]  # elsewhere the row's name says it
    return TextTable(
        title=f"Table {table}: {published.title}",
        headings=[headings[k] for k in kept],
        words=sum(k <= 2 for k in kept),
        lines=[[line[k] for k in kept] for line in lines],
    )


def _name(result: Result) -> str:
    return result.method if result.cited is None else f"{result.method} (cited: {result.cited})"


def _network(model: str | None) -> str:
    return NONE if model is None else NETWORKS[model].title


def _line(
    data: str,
    name: str,
    network: str,
    result: Result | None,
    quantities: Sequence[Quantity],
    mine: Sequence[TableRow],
    peers: Sequence[CompareRow] = (),
) -> list[str]:
    cells = [data, name, network]
    for quantity in quantities:
        found = [getattr(row, quantity.measured) for row in mine] + [getattr(row, quantity.peer) for row in peers]
        paper = published_number(result, quantity.published)
        here = mean_and_deviation([value for value in found if value is not None], quantity.rounded)
        cells += [NONE if paper is None else str(paper), here]
    return [*cells, str(len(mine) + len(peers)) if mine or peers else NONE]


def published_number(result: Result | None, key: str) -> Decimal | None:
    """Return a number of the paper, digit for digit, also one that only some tables have."""
    if result is None:
        return None
    value = getattr(result, key) if hasattr(result, key) else (result.more or {}).get(key)
    return None if value is None else Decimal(value)


def mean_and_deviation(values: Sequence[float], rounded: Callable[[Fraction | float, int], str]) -> str:
    """Write the mean, and ± the standard deviation if there are several."""
    if not values:
        return NONE
    mean = rounded(sum((written(value) for value in values), Fraction(0)) / len(values), 2)
    return mean if len(values) == 1 else f"{mean} ± {statistics.stdev(values):.2f}"


def cited_as(row: CompareRow) -> Result | None:
    """Find the row of Table 1 with the same method, images and ε, or None."""
    return next((each for each in tables()[1].rows if _same_method(row, each)), None)


def peers_of(result: Result, rows: Sequence[CompareRow]) -> list[CompareRow]:
    """Find our rows of a method that the paper cites: those of the largest budget, and of most images."""
    mine = [row for row in rows if result.cited is not None and _same_method(row, result)]
    most = max(((row.budget, row.n) for row in mine), default=None)
    return [row for row in mine if (row.budget, row.n) == most]


def _same_method(row: CompareRow, result: Result) -> bool:
    same = (row.data, row.title) == (result.data, result.method)
    return same and (result.eps is None or parse_eps(result.eps) == parse_eps(row.eps))  # Table 4 names no ε


class Panel(NamedTuple):
    """A panel of the picture: its title, and rows that differ only in method and budget."""

    title: str
    rows: list[CompareRow]


def panels(rows: Sequence[CompareRow]) -> list[Panel]:
    """Group the rows by panel: those of a panel share ε, augmentation, number of trials, seed and number of images."""
    return [Panel(f"{question(few[0])}, {few[0].n:,} test images", few) for few in _alike(_latest(rows), _rules)]


def question(row: CompareRow) -> str:
    """State the data and ε of a comparison."""
    return f"{row.data}, ε = {row.eps}"


def title(rows: Sequence[CompareRow]) -> str:
    """Name a comparison."""
    return question(rows[0]) if _budgets(rows) else f"{question(rows[0])}, {time_text(rows[0].budget)} for each"


def searches(rows: Sequence[TuneRow]) -> list[tuple[str, list[TuneRow]]]:
    """Group the rows by search: the title of each, and its rows, which differ only in method and setting."""
    found = _alike(rows, lambda row: (row.data, row.shared, row.budget, row.seed, row.n))
    return [(f"{few[0].data}, ε = {few[0].eps}, {few[0].n:,} held-out images", few) for few in found]


def front_table(rows: Sequence[TuneRow]) -> TextTable:
    """Tabulate the front of each method of one search; ● marks the front of all methods together."""
    lines, best = [], front(rows)
    for few in _alike(rows, lambda row: row.method):
        for row in front(few):
            lines.append([
                row.title, setting_in_words(row.setting), "●" if row in best else "", down(written(row.certified), 2),
                nearest(row.clean, 2), up(written(row.pgd20), 2), nearest(row.epochs, 1),
            ])  # fmt: skip
    which, _ = searches(rows)[0]
    headings = ["method", "setting", "best", "certified", "clean", "PGD-20", "epochs"]
    return TextTable(f"{which}: settings that no other one of the method beats", headings, 3, lines)


def searched_how(rows: Sequence[TuneRow]) -> str:
    """Say in one sentence how the trials of one search were made."""
    counts = sorted({len(few) for few in _alike(rows, lambda row: row.method)})
    trials = " to ".join(map(str, dict.fromkeys((counts[0], counts[-1])))) + (" trial" if counts == [1] else " trials")
    return f"{trials} per method, {time_text(rows[0].budget)} of training each; {_circumstances(rows)}"


def accuracy_table(rows: Sequence[CompareRow]) -> TextTable:
    """Tabulate certified, robust and clean accuracy of one comparison, the best certified row first."""
    lines = []
    for row in _ordered(rows):
        published = [published_number(cited_as(row), key) for key in ("certified", "test")]
        certified, clean = (NONE if number is None else str(number) for number in published)
        lines.append([
            _named(row, rows), down(written(row.certified), 2), certified, nearest(row.clean, 2), clean,
            up(written(row.pgd20), 2), up(written(row.strongest), 2),
        ])  # fmt: skip
    return TextTable(f"{title(rows)}: percent of {rows[0].n:,} test images", list(_ACCURACY), 1, lines)


def cost_table(rows: Sequence[CompareRow]) -> TextTable:
    """Tabulate what training with the chosen setting took, and the time to certify an image, in the same order."""
    lines = []
    for row in _ordered(rows):
        memory = NONE if row.memory_mb is None else nearest(row.memory_mb, 0)
        lines.append([
            _named(row, rows), nearest(row.seconds, 1), nearest(row.epochs, 1), nearest(row.seconds_per_epoch, 2),
            memory, nearest(row.certify_ms, 2), setting_in_words(row.chosen),
        ])  # fmt: skip
    return TextTable(f"{title(rows)}: the training", list(_COST), 1, lines)


def stated(rows: Sequence[CompareRow]) -> str:
    """Say in one sentence what holds for all rows of a comparison."""
    first = rows[0]
    trials = "one setting" if first.tried == 1 else f"{first.tried} settings tried on held-out images"
    time = "Training time as stated" if _budgets(rows) else f"{time_text(first.budget)} of training for each"
    return f"{time}, {trials}; {_circumstances(rows)}"


def _circumstances(rows: Sequence[CompareRow] | Sequence[TuneRow]) -> str:
    """State the seed, the machines and the days of some rows."""
    days = sorted({row.date for row in rows})
    machines = "; ".join(dict.fromkeys(f"{row.machine}, {_threads(row.threads)}" for row in rows))
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    return f"seed {rows[0].seed}; {machines}; {when}."


def _budgets(rows: Sequence[CompareRow]) -> bool:
    """Return whether some had more time than others."""
    return len({row.budget for row in rows}) > 1


def _named(row: CompareRow, rows: Sequence[CompareRow]) -> str:
    """Name the method, and its time if the rows differ in time."""
    return f"{row.title}, {time_text(row.budget)}" if _budgets(rows) else row.title


def _rules(row: CompareRow) -> tuple[Hashable, ...]:
    return row.data, row.shared, row.tried, row.seed, row.n


def _latest(rows: Sequence[CompareRow]) -> list[CompareRow]:
    """Keep the last row of each method under the same rules; our method has one row per recipe."""
    return list({(*_rules(row), row.budget, row.method): row for row in rows}.values())


def _alike(rows: Sequence[AnyRow], key: Callable[[AnyRow], Hashable]) -> list[list[AnyRow]]:
    """Group the rows by their keys, in the order in which these first occur."""
    found: dict[Hashable, list[AnyRow]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return list(found.values())


def _threads(count: int) -> str:
    return f"{count} thread{'s' if count > 1 else ''}"


def _ordered(rows: Sequence[CompareRow]) -> list[CompareRow]:
    return sorted(rows, key=lambda row: (-row.certified, -row.strongest, -row.clean))
