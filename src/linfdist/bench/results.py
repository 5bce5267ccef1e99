"""What a run of the benchmark found, and its JSON file."""

import dataclasses
import json
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ..files import write_atomically
from ..machine import Machine

SCHEMA = 1

Mark = Literal["goal", "floor", "missed", ""]


@dataclass(frozen=True)
class Spread:
    """The median and the quartiles of a sample."""

    median: float
    lower: float
    upper: float

    @staticmethod
    def of(sample: list[float]) -> "Spread":
        if len(sample) == 1:
            return Spread(sample[0], sample[0], sample[0])
        lower, median, upper = statistics.quantiles(sample, n=4, method="inclusive")
        return Spread(median, lower, upper)


@dataclass(frozen=True)
class Target:
    """What a ratio must reach (`floor`) and should reach (`goal`); which way is better follows from the two."""

    floor: float
    goal: float

    @property
    def higher_is_better(self) -> bool:
        return self.goal > self.floor

    def mark(self, ratio: float) -> Mark:
        for mark, bound in (("goal", self.goal), ("floor", self.floor)):
            if ratio >= bound if self.higher_is_better else ratio <= bound:
                return mark  # type: ignore[return-value]
        return "missed"


@dataclass(frozen=True)
class RaceRow:
    """The engine against one rival, per element, as a ratio whose meaning `measure` states."""

    operation: str
    p: str
    data: str
    problem: str
    rival: str
    rival_problem: str
    measure: str
    repetitions: int
    engine_ms: Spread
    rival_ms: Spread
    ratio: Spread
    target: Target | None
    mark: Mark
    threads_ratio: Spread | None  # time on 1 thread over time on all: None where it was not measured
    threads_target: Target | None
    threads_mark: Mark
    rival_threads_ratio: Spread | None


@dataclass(frozen=True)
class Growth:
    """Time per element of a problem over that of the smallest one: 1 means that the time grows with the work."""

    operation: str
    p: str
    data: str
    base: str
    dimension: str
    factor: int
    repetitions: int
    ratio: Spread


@dataclass(frozen=True)
class Report:
    """`load`: busy cores before the run (None if unknown); `skipped`: what did not run, and why."""

    date: str  # ISO 8601, UTC
    machine: Machine
    load: float | None
    settings: dict[str, Any]
    rows: list[RaceRow]
    growth: list[Growth]
    skipped: dict[str, str]

    def write(self, file: Path) -> None:
        """Write a readable JSON file: either all of it or, if something fails, nothing."""
        content = {"schema": SCHEMA, **_rounded(dataclasses.asdict(self))}
        write_atomically(file, json.dumps(content, indent=2, ensure_ascii=False) + "\n")

    @staticmethod
    def read(file: Path) -> "Report":
        content = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(content, dict) or content.get("schema") != SCHEMA:
            raise ValueError(
                f"{file} is not a benchmark result of schema {SCHEMA}: measure again with `linfdist bench`"
            )
        return Report(
            date=content["date"],
            machine=Machine(**content["machine"]),
            load=content["load"],
            settings=content["settings"],
            rows=[_row(row) for row in content["rows"]],
            growth=[Growth(**{**growth, "ratio": Spread(**growth["ratio"])}) for growth in content["growth"]],
            skipped=content["skipped"],
        )


def _row(content: dict[str, Any]) -> RaceRow:
    fields: dict[str, Any] = {}
    for name, value in content.items():
        if isinstance(value, dict):
            value = Target(**value) if name.endswith("target") else Spread(**value)
        fields[name] = value
    return RaceRow(**fields)


def _rounded(content: Any) -> Any:
    """Five significant digits: more would be noise."""
    if isinstance(content, dict):
        return {key: _rounded(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [_rounded(value) for value in content]
    return float(f"{content:.5g}") if isinstance(content, float) else content
