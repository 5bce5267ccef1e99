"""Finished rows and their summary, of a shard or of the whole: a pair of files that belong together."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..files import remove_leftovers, write_atomically
from .rows import check_row
from .settings import Settings, Shard, file_sha256
from .summary import Row, summarise


@dataclass(frozen=True)
class Finished:
    """Where the two files of a shard are: rows.jsonl and summary.json, or rows-3-of-8.jsonl and summary-3-of-8.json."""

    out: Path
    shard: Shard

    @property
    def rows_file(self) -> Path:
        return self.out / f"rows{self.shard.suffix}.jsonl"

    @property
    def summary_file(self) -> Path:
        return self.out / f"summary{self.shard.suffix}.json"

    def write(
        self, rows: Sequence[Row], settings: Settings, seconds: Mapping[str, float], classes: Sequence[str]
    ) -> dict[str, Any]:
        """Replace both files; the summary. It is away while the rows change: a summary always fits its rows."""
        text = "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows)
        summary = (
            settings.as_json()
            | summarise(rows, settings.eps, settings.attacks)
            | {"classes": list(classes), "rows_sha256": hashlib.sha256(text.encode()).hexdigest()}
            | {"seconds": {name: round(value, 3) for name, value in seconds.items()}}
            | ({"shard": str(self.shard)} if self.shard.count > 1 else {})
        )
        for file in (self.rows_file, self.summary_file):
            remove_leftovers(file)
        self.summary_file.unlink(missing_ok=True)
        write_atomically(self.rows_file, text)
        write_atomically(self.summary_file, json.dumps(summary, indent=2) + "\n")
        return summary

    def summary(self) -> dict[str, Any] | None:
        """What `write` has written; None if there is none. ValueError if it cannot be read."""
        try:
            summary = json.loads(self.summary_file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (ValueError, RecursionError) as error:
            raise self._damaged(self.summary_file, f"it is no JSON: {error}") from None
        if not isinstance(summary, dict):
            raise self._damaged(self.summary_file, "it is no JSON object")
        return summary

    def check(self, summary: Mapping[str, Any]) -> None:
        """ValueError unless the rows are those the summary was made from."""
        if not self.rows_file.exists() or file_sha256(self.rows_file) != summary.get("rows_sha256"):
            raise self._damaged(self.rows_file, f"{self.summary_file.name} was not made from it")

    def rows(self, indices: Sequence[int], attacks: Sequence[str]) -> list[Row]:
        """The rows, which must be those of these images."""
        lines = self.rows_file.read_text(encoding="utf-8").splitlines()
        if len(lines) != len(indices):
            raise self._damaged(self.rows_file, f"it has {len(lines)} rows, expected {len(indices)}")
        try:
            return [check_row(json.loads(line), index, attacks) for line, index in zip(lines, indices, strict=True)]
        except (ValueError, RecursionError) as error:
            raise self._damaged(self.rows_file, str(error)) from None

    def remove(self) -> None:
        """Delete both files, the summary first: rows alone count for nothing."""
        self.summary_file.unlink(missing_ok=True)
        self.rows_file.unlink(missing_ok=True)

    def _damaged(self, path: Path, why: str) -> ValueError:
        return ValueError(f"{path} is damaged ({why}): --fresh evaluates anew")
