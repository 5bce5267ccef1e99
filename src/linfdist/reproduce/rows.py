"""Results of runs, one JSON object per line: tables and pages are made from them."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from .. import files
from ..recipes import Recipe
from .plan import Planned

Percent = Annotated[float, Field(ge=0, le=100)]


class TableRow(BaseModel):
    """One run of one row of a table; recipe: as it was trained.

    Percentages of the test set (`train_clean`: of the training images, during the last epoch); None where nothing was
    measured. Table 4 has seconds per epoch instead, by p, and their mean.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    table: int
    row: str
    scale: Literal["paper", "laptop"]
    recipe: Recipe
    clean: Percent | None = None
    robust: Percent | None = None
    certified: Percent | None = None
    train_clean: Percent | None = None
    seconds_by_p: dict[str, float] | None = None
    seconds_per_epoch: float | None = None
    hours: float = Field(ge=0)
    machine: str
    date: str

    def belongs_to(self, planned: Planned) -> bool:
        """Tell whether this is the result of such a run, with any seed: a recipe may have changed since."""
        mine, wanted = (each.model_dump(exclude={"source", "seed"}) for each in (self.recipe, planned.recipe))
        return (self.table, self.scale, mine) == (planned.table, planned.scale, wanted)


def read_table_rows(path: Path) -> list[TableRow]:
    """Read all rows; none if there is no such file. ValueError names a line that is no row."""
    rows = []
    for where, line in files.read_lines(path) if path.exists() else ():
        try:
            rows.append(TableRow.model_validate_json(line))
        except ValidationError as error:
            problem = error.errors()[0]
            key = ".".join(map(str, problem["loc"])) or "it"
            raise ValueError(f"{where}, is no result ({key}: {problem['msg']}): remove it") from None
    return rows


def append_rows(path: Path, values: Iterable[dict[str, Any]]) -> None:
    """Add rows, all at once and flushed to the disk: several runs may share the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(value, ensure_ascii=False, allow_nan=False) + "\n" for value in values)
    files.append(path, text)
