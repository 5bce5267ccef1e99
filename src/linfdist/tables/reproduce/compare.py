"""A table of the paper with our numbers beside its own, as text: for the terminal and for pages alike."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple

from ...eps import down, nearest, up, written
from ...report.published import NETWORKS, Result, tables
from ..compare.rows import CompareRow
from .beside import peers_of
from .plan import Scale, plan
from .rows import TableRow

NONE = "–"
PEERS = (1, 4)  # the tables with methods that `linfdist compare` runs


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
class ComparedTable:
    """A table of text cells: the first `words` columns hold words, the others numbers."""

    title: str
    headings: list[str]
    words: int
    lines: list[list[str]]


def compare(table: int, scale: Scale, rows: Sequence[TableRow], peers: Sequence[CompareRow] = ()) -> ComparedTable:
    """Lay out all published rows in the paper's order, baselines marked as cited, then those that only we have.

    Ours are means over the runs, with the standard deviation if there are several. peers: rows of `linfdist compare`,
    which are shown beside the baselines of Tables 1 and 4.
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
    return ComparedTable(
        title=f"Table {table}: {published.title}",
        headings=[headings[k] for k in kept],
        words=sum(k <= 2 for k in kept),
        lines=[[line[k] for k in kept] for line in lines],
    )


def _name(result: Result) -> str:
    return result.method if result.cited is None else f"{result.method} (cited: {result.cited})"


def _network(model: str | None) -> str:
    return NONE if model is None else NETWORKS[model]


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
        here = spread([value for value in found if value is not None], quantity.rounded)
        cells += [NONE if paper is None else str(paper), here]
    return [*cells, str(len(mine) + len(peers)) if mine or peers else NONE]


def published_number(result: Result | None, key: str) -> Decimal | None:
    """Take a number of the paper, digit for digit; some tables have numbers of their own."""
    if result is None:
        return None
    value = getattr(result, key) if hasattr(result, key) else (result.more or {}).get(key)
    return None if value is None else Decimal(value)


def spread(values: Sequence[float], rounded: Callable[[Fraction | float, int], str]) -> str:
    """Write the mean, and ± the standard deviation if there are several."""
    if not values:
        return NONE
    mean = rounded(sum((written(value) for value in values), Fraction(0)) / len(values), 2)
    return mean if len(values) == 1 else f"{mean} ± {statistics.stdev(values):.2f}"
