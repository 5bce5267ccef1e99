"""Stored results, one JSON object per line, from which tables and pages are made."""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from .. import files
from ..recipes.problems import in_words

Percent = Annotated[float, Field(ge=0, le=100)]


Result = TypeVar("Result", bound="Record")


class Record(BaseModel):
    """A stored result; it refuses unknown keys, wrong types and numbers that are not finite."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    @classmethod
    def parse(cls: type[Result], text: str | bytes, where: str, what: str = "result") -> Result:
        """Parse a JSON text; raise ValueError that starts with `where` and names every entry that does not fit."""
        files.parse_json(text, where)  # which is stricter than pydantic's parser, and says what the JSON lacks
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            problems = (f"{'.'.join(map(str, each['loc'])) or what}: {in_words(each)}" for each in error.errors())
            raise ValueError(f"{where} is no {what}: {'; '.join(problems)}") from None


def read_records(path: Path, kind: type[Result]) -> list[Result]:
    """Read all results of a file; [] if the file is missing. Raises ValueError that names the first invalid line."""
    rows = []
    for where, line in files.read_lines(path) if path.exists() else ():
        if not line.strip():
            continue
        try:
            rows.append(kind.parse(line, where))
        except ValueError as error:
            raise ValueError(f"{error}: remove this line") from None
    return rows


def append_records(path: Path, values: Iterable[dict[str, Any]]) -> None:
    """Add results, all at once and flushed to the disk: several runs may share the file.

    They start on a new line, even if the last line has lost its line break in an editor or a copy.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(value, ensure_ascii=False, allow_nan=False) + "\n" for value in values)
    files.append(path, text if _ends_a_line(path) else "\n" + text)


def _ends_a_line(path: Path) -> bool:
    """Return whether a file is missing, empty, or ends with a line break."""
    if not path.exists() or not path.stat().st_size:
        return True
    with files.opened(path) as file:
        file.seek(-1, os.SEEK_END)
        return file.read() == b"\n"
