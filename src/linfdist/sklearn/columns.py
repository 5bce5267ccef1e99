"""Parse statements about columns, by name or position: which are fixed, and how far the others may move."""

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from fractions import Fraction
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..eps import in_words, is_number, parse_change, round_up
from .scaling import DENORMAL, Floats, check_unmasked

SHOWN = 3  # columns that a sentence names


class Change(NamedTuple):
    """How far each number may fall and grow, in the units of X, rounded up: float64 >= 0 that broadcast to X.

    Both are the same array if the change is the same in both directions.
    """

    down: Floats
    up: Floats


def is_by_column(eps: Any) -> bool:
    """Return whether it maps columns to changes: a dict, or a pandas Series."""
    return hasattr(eps, "items") and hasattr(eps, "keys")


@dataclass(frozen=True)
class Columns:
    """The columns of a table: how many, and their names if the training data had some."""

    count: int
    names: tuple[str, ...] | None

    def position(self, key: Any, what: str) -> int:
        """Return the position of a column; raise ValueError or TypeError that lists the columns. what: who asks."""
        if isinstance(key, str):
            if self.names is None:
                raise ValueError(
                    f"{what}: column {key!r}: the classifier was fitted to columns without names; give positions from "
                    f"0 to {self.count - 1}, or fit it to a DataFrame"
                )
            if key not in self.names:
                close = get_close_matches(key, self.names, 1)
                hint = f"did you mean {close[0]!r}?" if close else f"there are {_some(map(repr, self.names))}"
                raise ValueError(f"{what}: there is no column {key!r}; {hint}")
            return self.names.index(key)
        if isinstance(key, bool | np.bool_) or not isinstance(key, Integral):
            raise TypeError(f"{what}: a column must be a name or a position, got {key!r}")
        if not 0 <= (position := int(key)) < self.count:
            raise ValueError(f"{what}: there is no column {key}; positions go from 0 to {self.count - 1}")
        return position

    def name(self, position: int) -> str:
        """Return a column's name for messages."""
        return f"column {position}" if self.names is None else repr(self.names[position])

    def mask(self, given: Any, what: str) -> NDArray[np.bool_]:
        """Return (count,) bool from names, positions, or truth values for all columns; None selects no column."""
        check_unmasked(given, what)
        keys = [given] if isinstance(given, str) else [] if given is None else list(given)
        if len(keys) == self.count and all(isinstance(key, bool | np.bool_) for key in keys):
            return np.array(keys, dtype=bool)
        mask = np.zeros(self.count, dtype=bool)
        mask[[self.position(key, what) for key in keys]] = True
        return mask

    def changes(self, given: Any) -> Change:
        """Return how far each column may move; those that are not named stay as they are. given: see `is_by_column`."""
        down, up = np.zeros(self.count), np.zeros(self.count)
        seen = set()
        for key, value in given.items():
            column = self.position(key, "eps")
            if column in seen:
                raise ValueError(f"eps: {self.name(column)} is there twice")
            seen.add(column)
            for side, each in zip((down, up), _pair(value, f"eps of {self.name(column)}"), strict=True):
                exact = parse_change(each, f"eps of {self.name(column)}")
                side[column] = round_up(exact) + DENORMAL if exact else 0.0  # a denormal may be taken for 0
        return Change(down, down) if np.array_equal(down, up) else Change(down, up)

    def in_words(self, given: Any) -> str:
        """Write how far columns may move: "'age' ±2, 'income' −0 +0.1"."""
        return _some(f"{self.name(self.position(key, 'eps'))} {_moves(value)}" for key, value in given.items())


def _pair(value: Any, what: str) -> tuple[Any, Any]:
    if is_number(value):
        return value, value
    if isinstance(value, list | tuple | np.ndarray) and len(value) == 2:
        return value[0], value[1]
    raise TypeError(f"{what} = {value!r}: must be a number, or two: how far it may fall, and how far it may grow")


def _moves(value: Any) -> str:
    down, up = (in_words(each) if isinstance(each, Fraction) else str(each) for each in _pair(value, "eps"))
    return f"±{up}" if down == up else f"−{down} +{up}"


def _some(words: Iterable[str]) -> str:
    every = list(words)
    more = len(every) - SHOWN
    return ", ".join(every[:SHOWN]) + (f" and {more} more" if more > 0 else "")
