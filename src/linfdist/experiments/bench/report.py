"""Results of a benchmark: their JSON file, and their tables for the terminal."""

import dataclasses
import json
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ...files import read_json_object, write_atomically
from ...ops.machine import Machine

SCHEMA = 1
# Uniform pixels against normal weights: the maximum lies among the few largest weights of a row, and the engine
# proves that the others never count and leaves them out. On wide data no weight can be left out.
AS_SPECIFIED, NOTHING_TO_PRUNE = "as specified", "nothing to prune"

Mark = Literal["goal", "floor", "missed", ""]
COLOURS: dict[Mark, str] = {"goal": "green", "floor": "yellow", "missed": "red", "": ""}

DATA_IN_WORDS = {
    AS_SPECIFIED: "x uniform in [0, 1] and w standard normal: the engine proves that most weights cannot matter for "
    "any row of the batch, and leaves them out (at p = ∞ the results keep their bits; at finite p what is left out is "
    "below 2⁻³² of the largest term)",
    NOTHING_TO_PRUNE: "x = 3 · standard normal, where every weight counts",
}


@dataclass(frozen=True)
class Quartiles:
    """The median and the quartiles of a sample."""

    median: float
    lower: float
    upper: float

    @staticmethod
    def of(sample: list[float]) -> "Quartiles":
        if len(sample) == 1:
            return Quartiles(sample[0], sample[0], sample[0])
        lower, median, upper = statistics.quantiles(sample, n=4, method="inclusive")
        return Quartiles(median, lower, upper)


@dataclass(frozen=True)
class Target:
    """What a ratio must reach (`floor`) and should reach (`goal`); larger is better if goal > floor."""

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
    engine_ms: Quartiles
    rival_ms: Quartiles
    ratio: Quartiles
    target: Target | None
    mark: Mark
    threads_ratio: Quartiles | None  # time on 1 thread over time on all: None where it was not measured
    threads_target: Target | None
    threads_mark: Mark
    rival_threads_ratio: Quartiles | None


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
    ratio: Quartiles


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
        content = read_json_object(file)
        if content.get("schema") != SCHEMA:
            raise ValueError(
                f"{file} is not a benchmark result of schema {SCHEMA}: measure again with `linfdist bench`"
            )
        return Report(
            date=content["date"],
            machine=Machine(**content["machine"]),
            load=content["load"],
            settings=content["settings"],
            rows=[_row(row) for row in content["rows"]],
            growth=[Growth(**{**growth, "ratio": Quartiles(**growth["ratio"])}) for growth in content["growth"]],
            skipped=content["skipped"],
        )


def _row(content: dict[str, Any]) -> RaceRow:
    fields: dict[str, Any] = {}
    for name, value in content.items():
        if isinstance(value, dict):
            value = Target(**value) if name.endswith("target") else Quartiles(**value)
        fields[name] = value
    return RaceRow(**fields)


def _rounded(content: Any) -> Any:
    """Round to five significant digits: more would be noise."""
    if isinstance(content, dict):
        return {key: _rounded(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [_rounded(value) for value in content]
    return float(f"{content:.5g}") if isinstance(content, float) else content


def terminal(report: Report) -> RenderableType:
    """Lay out the tables that `linfdist bench` shows."""
    machine, threads = report.machine, report.settings["threads"]
    heading = (
        f"{machine.cpu}, {threads} of {machine.cores} cores, {machine.backend}; repetitions: {repetitions(report)}"
    )
    sections: dict[str, list[RaceRow]] = {}
    for row in report.rows:
        sections.setdefault(f"{row.operation}: {row.measure} {row.rival}{note(row)}", []).append(row)
    notes = [Text(f"{data}: {text}", style="dim") for data, text in DATA_IN_WORDS.items()]
    notes += [Text(f"not measured: {name} ({reason})", style="yellow") for name, reason in report.skipped.items()]
    if report.load and report.load > 0.3:
        busy = (
            f"other programs kept {report.load:.1f} cores busy in the minute before: measure again on a quiet machine"
        )
        notes.append(Text(busy, style="yellow"))
    if scaling_target(report):
        notes.append(
            Text(f"1→{threads}: time on one thread over time on {threads}{scaling_target(report)}", style="dim")
        )
    tables = [_speed_table(title, rows, threads) for title, rows in sections.items()]
    return Group(Text(f"{heading}\n"), *tables, _growth_table(report.growth), *notes)


def _speed_table(title: str, rows: list[RaceRow], threads: int) -> Table:
    table = _table(title[0].upper() + title[1:])
    table.add_column("")
    table.add_column("floor, goal", justify="right")
    for data in DATA_IN_WORDS:
        table.add_column("ms", justify="right", style="dim", no_wrap=True)
        table.add_column(data, justify="right", min_width=13, overflow="fold")
        table.add_column(f"1→{threads}", justify="right")
    for pair in pairs(rows):
        row = next(iter(pair.values()))
        cells: list[Text] = []
        for data in DATA_IN_WORDS:
            cells += _cells(pair[data]) if data in pair else [Text(), Text(), Text()]
        table.add_row(f"p = {row.p}", ", ".join(filter(None, bounds(row.target))), *cells)
    return table


def _cells(row: RaceRow) -> list[Text]:
    quartiles = f"({row.ratio.lower:.3g}–{row.ratio.upper:.3g})"
    return [
        Text(f"{row.engine_ms.median:.0f}" if row.engine_ms.median >= 100 else f"{row.engine_ms.median:.3g}"),
        Text.assemble((ratio(row), COLOURS[row.mark]), " ", (quartiles, "dim")),
        Text(scaling(row), style=COLOURS[row.threads_mark]),
    ]


def _growth_table(growth: list[Growth]) -> Table:
    base = growth[0].base if growth else ""
    table = _table(f"Time per element as sizes grow, over that at {base}")
    table.add_column("")
    table.add_column("data")
    points = list(dict.fromkeys((point.dimension, point.factor) for point in growth))
    for dimension, factor in points:
        table.add_column(f"{dimension} × {factor}", justify="right")
    for p, operation, data in dict.fromkeys((point.p, point.operation, point.data) for point in growth):
        ratios = {
            (point.dimension, point.factor): point.ratio.median
            for point in growth
            if (point.p, point.operation, point.data) == (p, operation, data)
        }
        table.add_row(f"p = {p} {operation}", data, *(f"{ratios[point]:.2f}" for point in points))
    return table


def _table(title: str) -> Table:
    return Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))


def pairs(rows: list[RaceRow]) -> list[dict[str, RaceRow]]:
    """Pair the rows that differ only in their data."""
    pairs: dict[tuple[str, str, str], dict[str, RaceRow]] = {}
    for row in rows:
        pairs.setdefault((row.operation, row.p, row.rival), {})[row.data] = row
    return list(pairs.values())


def note(row: RaceRow) -> str:
    """Say on which problem the rival ran, if on a smaller one."""
    smaller = row.rival.startswith("torch.") and row.rival_problem != row.problem
    return f", per element ({row.rival_problem.split(',')[0]} there)" if smaller else ""


def bounds(target: Target | None) -> tuple[str, str]:
    """Write floor and goal of a ratio."""
    if target is None:
        return "", ""
    sign = "≥" if target.higher_is_better else "≤"
    return f"{sign} {target.floor:g}", f"{sign} {target.goal:g}"


def ratio(row: RaceRow) -> str:
    """Write the ratio with three digits."""
    return f"{row.ratio.median:.3g}"


def scaling(row: RaceRow) -> str:
    """Write what more threads gain."""
    return f"{row.threads_ratio.median:.2f}" if row.threads_ratio else ""


def scaling_target(report: Report) -> str:
    """Write what more threads should gain."""
    target = report.rows[0].threads_target
    return f" (floor {bounds(target)[0]}, goal {bounds(target)[1]})" if target else ""


def repetitions(report: Report) -> str:
    """Write how often everything was run."""
    counts = {row.repetitions for row in report.rows}
    return f"{min(counts)}" if len(counts) == 1 else f"{min(counts)} to {max(counts)}"
