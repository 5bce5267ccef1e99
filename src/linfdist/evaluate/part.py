"""The rows of an evaluation under way: kept batch by batch, so that little is lost whenever it is stopped."""

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..files import remove_leftovers, write_atomically
from .rows import check_row
from .settings import Settings
from .summary import Row

FORMAT = "linfdist-rows-1"


@dataclass(frozen=True)
class Done:
    """A batch that is finished: its rows, and the seconds that each part of the work took."""

    rows: list[Row]
    seconds: dict[str, float]


class Part:
    """A file with one line of settings, then one line a batch.

    A line is written at once and flushed to the disk before the next batch begins. Whoever is killed while writing
    leaves a line without an end, which the next reader drops.
    """

    def __init__(self, path: Path, settings: Settings, batches: Mapping[int, range]) -> None:
        """batches: the indices of the images in each batch, by the batch's number, in the order they are worked on."""
        self.path, self.settings, self.batches = path, settings, batches
        self.done: dict[int, Done] = {}

    def start(self) -> None:
        """Begin anew."""
        remove_leftovers(self.path)
        header = {"format": FORMAT, "settings": self.settings.as_json()}
        write_atomically(self.path, json.dumps(header) + "\n")

    def resume(self) -> None:
        """Take up what is there; ValueError if it has other settings or was not written by `add`."""
        content = self.path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        lines = whole.split(b"\n")[:-1]
        self._check_header(lines[0] if lines else b"")
        for number, line in enumerate(lines[1:], start=2):
            try:
                self._take(json.loads(line))
            except (ValueError, RecursionError) as error:
                raise self._damaged(f"line {number}: {error}") from None
        if len(whole) < len(content):
            os.truncate(self.path, len(whole))

    def add(self, batch: int, done: Done) -> None:
        """Keep a finished batch."""
        line = json.dumps({"batch": batch, "rows": done.rows, "seconds": done.seconds}, allow_nan=False) + "\n"
        with open(self.path, "ab") as file:
            file.write(line.encode())
            file.flush()
            os.fsync(file.fileno())
        self.done[batch] = done

    @property
    def missing(self) -> list[int]:
        """The batches still to do."""
        return [batch for batch in self.batches if batch not in self.done]

    def rows(self) -> list[Row]:
        """All rows so far, in order."""
        return [row for batch in self.batches if batch in self.done for row in self.done[batch].rows]

    def seconds(self) -> dict[str, float]:
        """The time spent so far, by what for."""
        return add_up(done.seconds for done in self.done.values())

    def _check_header(self, line: bytes) -> None:
        try:
            header = json.loads(line)
            kept = header["settings"] if header["format"] == FORMAT else None
        except (ValueError, TypeError, KeyError, RecursionError):
            kept = None
        if not isinstance(kept, dict):
            raise self._damaged("its first line holds no settings")
        if different := self.settings.differences(kept):
            raise ValueError(
                f"{self.path} is of an evaluation with other settings ({'; '.join(different)}): "
                "use the same settings to go on with it, --fresh to drop it, or another --out"
            )

    def _take(self, line: Any) -> None:
        if not isinstance(line, dict) or line.keys() != {"batch", "rows", "seconds"}:
            raise ValueError("is no batch")
        batch, rows, seconds = line["batch"], line["rows"], line["seconds"]
        if type(batch) is not int or batch not in self.batches or batch in self.done:
            raise ValueError(f"batch {batch!r} does not belong here")
        if not isinstance(rows, list) or len(rows) != len(self.batches[batch]):
            raise ValueError(f"batch {batch} should have {len(self.batches[batch])} rows")
        attacks = self.settings.attacks
        checked = [check_row(row, index, attacks) for row, index in zip(rows, self.batches[batch], strict=True)]
        if not isinstance(seconds, dict) or not all(type(value) is float for value in seconds.values()):
            raise ValueError(f"batch {batch} has no seconds")
        self.done[batch] = Done(checked, seconds)

    def _damaged(self, why: str) -> ValueError:
        return ValueError(
            f"{self.path} is damaged and cannot be gone on with ({why}): --fresh drops it and starts anew"
        )


def add_up(times: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """The sum of each entry."""
    total: dict[str, float] = {}
    for each in times:
        for name, value in each.items():
            total[name] = total.get(name, 0.0) + value
    return total
