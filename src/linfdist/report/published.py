"""Published numbers, as printed: Decimals keep every digit, so 56.80 stays 56.80."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from importlib.resources import files
from typing import Any

from ..eps import parse_eps
from ..files import parse_toml

_FIELDS = ("data", "eps", "method", "cited", "model", "flops", "test", "robust", "certified", "note")


@dataclass(frozen=True)
class Result:
    """One row of a table of the paper; None where the paper gives no number.

    cited: the work that a baseline is quoted from, None for the paper's own networks. test, robust, certified: percent.
    more: columns of single tables (depth, decay, train, seconds_per_epoch, ...).
    """

    table: int
    data: str
    method: str
    eps: str | None = None
    cited: str | None = None
    model: str | None = None
    flops: str | None = None
    test: Decimal | None = None
    robust: Decimal | None = None
    certified: Decimal | None = None
    note: str | None = None
    more: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Table:
    """A table of the paper, its rows in the paper's order."""

    number: int
    title: str
    rows: tuple[Result, ...]


@functools.cache
def tables() -> dict[int, Table]:
    """Return every stored table, by its number in the paper."""
    text = (files(__package__) / "published.toml").read_bytes()
    found = parse_toml(text, "published.toml", parse_float=Decimal)["tables"]
    return {entry["number"]: _table(entry) for entry in found}


def _table(entry: Mapping[str, Any]) -> Table:
    number = entry["number"]
    rows = []
    for row in entry["rows"]:
        more = {key: value for key, value in row.items() if key not in _FIELDS}
        rows.append(Result(number, **{key: row[key] for key in _FIELDS if key in row}, more=more))
    return Table(number, entry["title"], tuple(rows))


def beside(data: str, eps: Fraction) -> list[Result]:
    """Select what to show beside a result on `data` at exactly `eps`: Tables 1 and 2, and what Table 9 adds to them."""
    rows = [row for number in (1, 2, 9) for row in tables()[number].rows]
    chosen: dict[tuple[object, ...], Result] = {}
    for row in rows:
        if row.data == data and row.eps is not None and parse_eps(row.eps) == eps:
            chosen.setdefault((row.method, row.cited, row.test, row.robust, row.certified), row)
    return list(chosen.values())


def paper_certified(data: str, eps: str, model: str) -> Decimal | None:
    """Find the paper's certified accuracy of this kind of network; None if it has none."""
    found = [row.certified for row in beside(data, parse_eps(eps)) if row.cited is None and row.model == model]
    return found[0] if found else None
