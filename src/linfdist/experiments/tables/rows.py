"""Results of comparisons and of the paper's tables, one JSON object per line; tables and pictures read them."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from ...files import append, check_writable
from ...recipes import Recipe
from ...runs.records import Percent, Record, read_records
from .rules import OURS

if TYPE_CHECKING:
    from .plan import Planned

Setting = dict[str, float | int | str | list[float]]


class Trial(Record):
    """A short training with one setting, and percentages of the held-out images.

    problem: what went wrong, if it did; then nothing was measured, and all percentages are 0.
    """

    setting: Setting
    epochs: float = Field(gt=0)
    seconds: float = Field(ge=0)
    clean: Percent
    pgd20: Percent
    certified: Percent
    problem: str | None = None

    @property
    def rank(self) -> tuple[bool, float, float, float]:
        """Sort key of trials: certified accuracy, then accuracy under attack, then clean accuracy."""
        return self.problem is None, self.certified, self.pgd20, self.clean


class CompareRow(Record):
    """One contender under the rules of a comparison.

    shared: a checksum of the ε and the augmentation that all contenders share; recipe: a checksum of all that this
    contender took from the recipe, equal to `shared` for all except ours. budget: seconds, of which the trials had a
    share; trials: empty if there was one setting only. epochs, seconds, seconds_per_epoch, memory_mb: of the training
    with the chosen setting; memory_mb is the most that the process held, None where the system does not tell.
    Percentages are of the first n test images; strongest: correct, and broken by no attack. certify_ms: milliseconds of
    all proofs, divided by n; costly ones run on a part of the images only, see docs/compare.md.
    """

    data: str
    eps: str
    shared: str
    recipe: str
    method: str
    title: str
    source: str
    budget: float = Field(gt=0)
    seed: int
    trials: list[Trial]
    chosen: Setting
    epochs: float = Field(gt=0)
    seconds: float = Field(ge=0)
    seconds_per_epoch: float = Field(ge=0)
    memory_mb: float | None = None
    parameters: int = Field(ge=0)
    certified_by: str
    n: int = Field(ge=1)
    clean: Percent
    pgd20: Percent
    strongest: Percent
    certified: Percent
    certify_ms: float = Field(ge=0)
    threads: int = Field(ge=1)
    machine: str
    date: str

    @property
    def tried(self) -> int:
        """How many settings it tried."""
        return max(1, len(self.trials))

    @property
    def ours(self) -> bool:
        """Whether it is a network of this package, as opposed to a rival."""
        return self.method == OURS

    @property
    def led(self) -> Trial | None:
        """The trial whose setting was chosen; None if there was no choice."""
        return next((trial for trial in self.trials if trial.setting == self.chosen), None)


class TuneRow(Trial):
    """One trial of a search by `linfdist tune`: percentages of the n held-out images.

    number: 0, 1, ... among the trials of its method; point: the numbers that were searched, of which `setting` is made;
    budget: the seconds of training that every trial has. Further names are those of `CompareRow`.
    """

    data: str
    eps: str
    shared: str
    recipe: str
    method: str
    title: str
    budget: float = Field(gt=0)
    seed: int
    number: int = Field(ge=0)
    point: dict[str, float]
    certified_by: str
    n: int = Field(ge=1)
    threads: int = Field(ge=1)
    machine: str
    date: str

    @property
    def ours(self) -> bool:
        """Whether it is a network of this package, as opposed to a rival."""
        return self.method == OURS


def read_tune_rows(path: Path) -> list[TuneRow]:
    """Read all rows; [] if the file is missing. Raises ValueError that names the first invalid line."""
    return read_records(path, TuneRow)


def read_compare_rows(path: Path) -> list[CompareRow]:
    """Read all rows; [] if the file is missing. Raises ValueError that names the first invalid line."""
    return read_records(path, CompareRow)


def plain(setting: Mapping[str, Any]) -> Setting:
    """Convert a setting to its JSON form."""
    return {key: list(value) if isinstance(value, tuple) else value for key, value in setting.items()}


def setting_in_words(setting: Setting) -> str:
    """Write a setting in one line; an empty text for one that changes nothing."""
    return " ".join(f"{key}={_value(value)}" for key, value in setting.items()) or "as it is"


def _value(value: float | str | list[float]) -> str:
    if isinstance(value, list):
        return "→".join(f"{each:g}" for each in value)
    return value if isinstance(value, str) else f"{value:.4g}"


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

    def belongs_to(self, planned: "Planned") -> bool:
        """Tell whether this is the result of such a run, with any seed: a recipe may have changed since."""
        mine, wanted = (
            each.resolved().model_dump(exclude={"source", "seed"}) for each in (self.recipe, planned.recipe)
        )
        return (self.table, self.scale, mine) == (planned.table, planned.scale, wanted)


def read_table_rows(path: Path) -> list[TableRow]:
    """Read all rows; [] if the file is missing. Raises ValueError that names the first invalid line."""
    return read_records(path, TableRow)


def check_rows_file(rows_file: Path, option: str) -> None:
    """Raise before hours of training, and not after them; what other processes write there is left alone.

    option: which one of the command line names another file.
    """
    try:
        rows_file.parent.mkdir(parents=True, exist_ok=True)
        append(rows_file, "") if os.path.lexists(rows_file) else check_writable(rows_file)
    except OSError as error:
        what = f"{rows_file} cannot be written ({error.strerror})" if error.strerror else str(error)
        raise ValueError(f"{what}: choose another {option}") from None
