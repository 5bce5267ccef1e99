"""Results of runs, one JSON object per line: tables and pages are made from them."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from ...recipes import Recipe
from ...runs.records import Percent, Record, read_records
from .plan import Planned


class TableRow(Record):
    """One run of one row of a table; recipe: as it was trained.

    Percentages of the test set (`train_clean`: of the training images, during the last epoch); None where nothing was
    measured. Table 4 has seconds per epoch instead, by p, and their mean.
    """

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
    return read_records(path, TableRow)
