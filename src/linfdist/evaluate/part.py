"""The rows of an evaluation under way, kept batch by batch: whenever it is stopped, at most one batch is lost."""

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..files import MOST_LINE_BYTES, append, excerpt, parse_json, read_lines, remove_leftovers, write_atomically
from ..runs.rows import Row, check_rows
from .settings import EvaluationSettings

FORMAT = "linfdist-rows-1"


@dataclass(frozen=True)
class Done:
    """A finished batch: its rows, and the seconds that each part of the work took."""

    rows: list[Row]
    seconds: dict[str, float]


class Part:
    """A file with one line of settings, then one line per batch.

    A line is written at once and flushed to the disk before the next batch begins. A process that is killed while it
    writes leaves a line without an end, which the next reader drops.
    """

    def __init__(self, path: Path, settings: EvaluationSettings, batches: Mapping[int, range]) -> None:
        """batches: the indices of the images in each batch, by the batch's number, in the order they are worked on."""
        self.path, self.settings, self.batches = path, settings, batches
        self.done: dict[int, Done] = {}

    def start(self) -> None:
        """Begin a new file."""
        remove_leftovers(self.path)
        header = {"format": FORMAT, "settings": self.settings.as_json()}
        write_atomically(self.path, json.dumps(header) + "\n")

    def resume(self) -> None:
        """Read what is finished; ValueError if the file has other settings or was not written by `add`."""
        longest = MOST_LINE_BYTES * (1 + max(map(len, self.batches.values()), default=0))
        whole, different = 0, ["the settings are missing"]
        try:
            for number, (_, line) in enumerate(read_lines(self.path, longest), start=1):
                if not line.endswith(b"\n"):
                    break
                values = parse_json(line, f"line {number}")
                if number == 1:
                    different = self.settings.differences(_settings(values))
                elif not different:
                    self._take(values, f"line {number}")
                whole += len(line)
            if not whole:
                raise ValueError("line 1 is missing")
        except ValueError as error:
            raise ValueError(
                f"{self.path} is damaged and cannot be resumed ({error}): --fresh drops it and starts anew"
            ) from None
        if different:
            raise ValueError(
                f"{self.path} is of an evaluation with other settings ({'; '.join(different)}): "
                "use the same settings to resume it, --fresh to drop it, or another --out"
            )
        if whole < self.path.stat().st_size:
            os.truncate(self.path, whole)

    def add(self, batch: int, done: Done) -> None:
        """Keep a finished batch."""
        rows = [row.as_json() for row in done.rows]
        line = json.dumps({"batch": batch, "rows": rows, "seconds": done.seconds}, allow_nan=False) + "\n"
        append(self.path, line)
        self.done[batch] = done

    @property
    def missing(self) -> list[int]:
        """The batches that are still to be done."""
        return [batch for batch in self.batches if batch not in self.done]

    def rows(self) -> list[Row]:
        """All rows so far, in order."""
        return [row for batch in self.batches if batch in self.done for row in self.done[batch].rows]

    def seconds(self) -> dict[str, float]:
        """The seconds spent so far on each part of the work."""
        return add_up(done.seconds for done in self.done.values())

    def _take(self, line: Any, where: str) -> None:
        if not isinstance(line, dict) or line.keys() != {"batch", "rows", "seconds"}:
            raise ValueError(f"{where}: must be a batch with its rows and seconds, got {excerpt(line)}")
        batch, rows, seconds = line["batch"], line["rows"], line["seconds"]
        if type(batch) is not int or batch not in self.batches or batch in self.done:
            raise ValueError(f"{where}: batch {excerpt(batch)} does not belong here")
        if not isinstance(rows, list) or len(rows) != len(self.batches[batch]):
            raise ValueError(f"{where}: batch {batch} must have {len(self.batches[batch])} rows")
        if not isinstance(seconds, dict) or not all(type(value) is float for value in seconds.values()):
            raise ValueError(f"{where}: seconds must be numbers, got {excerpt(seconds)}")
        parsed = [Row.parse(row, f"{where}, row {k}") for k, row in enumerate(rows, start=1)]
        try:
            check_rows(parsed, self.batches[batch], self.settings.attacks)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None
        self.done[batch] = Done(parsed, seconds)


def _settings(header: Any) -> dict[str, Any]:
    if not isinstance(header, dict) or header.get("format") != FORMAT or not isinstance(header.get("settings"), dict):
        raise ValueError(f"line 1 must hold the settings, got {excerpt(header)}")
    return header["settings"]


def add_up(times: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """The sum of each entry."""
    total: Counter[str] = Counter()
    for each in times:
        total.update(each)
    return dict(total)
