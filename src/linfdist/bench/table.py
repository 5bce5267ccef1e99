"""Results as tables: for the terminal, and as Markdown for the README.

`python -m linfdist.bench.table RESULTS.json` prints Markdown; with `--readme README.md` it replaces what stands in that
file between the marks `bench:begin` and `bench:end`.
"""

import argparse
import os
import sys
from pathlib import Path

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from .results import Growth, Mark, Report, Row, Target
from .suite import AS_SPECIFIED, NOTHING_TO_PRUNE

BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"

COLOURS: dict[Mark, str] = {"goal": "green", "floor": "yellow", "missed": "red", "": ""}
WORDS: dict[Mark, str] = {"goal": " (goal)", "floor": " (floor)", "missed": " (**missed**)", "": ""}

DATA = {
    AS_SPECIFIED: "x uniform in [0, 1] and w standard normal: the engine proves that most weights cannot matter for "
    "any row of the batch, and leaves them out (at p = ∞ the results keep their bits; at finite p what is left out is "
    "below 2⁻³² of the largest term)",
    NOTHING_TO_PRUNE: "x = 3 · standard normal, where every weight counts",
}


def markdown(report: Report) -> str:
    """The README's table."""
    threads = report.settings["threads"]
    problem = f"float32, {report.rows[0].problem}, {threads} threads"
    lines = [
        f"| {problem} | floor | goal | {' | '.join(DATA)} | 1 → {threads} threads{_scaling_target(report)} |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for pair in _pairs(report.rows):
        row = next(iter(pair.values()))
        cells = [f"{_ratio(pair[data])}{WORDS[pair[data].mark]}" if data in pair else "" for data in DATA]
        scaling = " and ".join(f"{_scaling(row)}×" for row in pair.values() if row.threads_ratio)
        title = f"p = {row.p} {row.operation}: {row.measure} {row.rival}{_note(row)}"
        lines.append(f"| {' | '.join([title, *_bounds(row.target), *cells, scaling])} |")
    machine = report.machine
    commit = f" ({machine.commit[:12]}{'-dirty' * machine.commit.endswith('-dirty')})" if machine.commit else ""
    lines += [
        "",
        f"{machine.cpu}, {machine.cores} cores, {machine.backend}; torch {machine.torch}, "
        f"linfdist {machine.linfdist}{commit}, {report.date[:10]}. "
        f"Medians of ratios, each formed within a repetition that runs every contender once; "
        f"repetitions: {_repetitions(report)}.",
        *(f"*{data.capitalize()}*: {text}." for data, text in DATA.items()),
        *(f"Not measured: {name} ({reason})." for name, reason in report.skipped.items()),
    ]
    return "\n".join(lines)


def put_into_readme(readme: Path, table: str) -> None:
    """Replace what stands between the two marks."""
    text = readme.read_text(encoding="utf-8")
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise ValueError(f"{readme} must hold {BEGIN} and, after it, {END}, each once")
    before, rest = text.split(BEGIN)
    draft = readme.with_name(f".{readme.name}.draft")
    draft.write_text(f"{before}{BEGIN}\n{table}\n{END}{rest.split(END)[1]}", encoding="utf-8")
    os.replace(draft, readme)


def terminal(report: Report) -> RenderableType:
    """The tables that `linfdist bench` shows."""
    machine, threads = report.machine, report.settings["threads"]
    heading = (
        f"{machine.cpu}, {threads} of {machine.cores} cores, {machine.backend}; repetitions: {_repetitions(report)}"
    )
    sections: dict[str, list[Row]] = {}
    for row in report.rows:
        sections.setdefault(f"{row.operation}: {row.measure} {row.rival}{_note(row)}", []).append(row)
    notes = [Text(f"{data}: {text}", style="dim") for data, text in DATA.items()]
    notes += [Text(f"not measured: {name} ({reason})", style="yellow") for name, reason in report.skipped.items()]
    if report.load and report.load > 0.3:
        busy = (
            f"other programs kept {report.load:.1f} cores busy in the minute before: measure again on a quiet machine"
        )
        notes.append(Text(busy, style="yellow"))
    if _scaling_target(report):
        notes.append(
            Text(f"1→{threads}: time on one thread over time on {threads}{_scaling_target(report)}", style="dim")
        )
    tables = [_speed_table(title, rows, threads) for title, rows in sections.items()]
    return Group(Text(f"{heading}\n"), *tables, _growth_table(report.growth), *notes)


def _speed_table(title: str, rows: list[Row], threads: int) -> Table:
    table = _table(title[0].upper() + title[1:])
    table.add_column("")
    table.add_column("floor, goal", justify="right")
    for data in DATA:
        table.add_column("ms", justify="right", style="dim", no_wrap=True)
        table.add_column(data, justify="right", min_width=13, overflow="fold")
        table.add_column(f"1→{threads}", justify="right")
    for pair in _pairs(rows):
        row = next(iter(pair.values()))
        cells: list[Text] = []
        for data in DATA:
            cells += _cells(pair[data]) if data in pair else [Text(), Text(), Text()]
        table.add_row(f"p = {row.p}", ", ".join(filter(None, _bounds(row.target))), *cells)
    return table


def _cells(row: Row) -> list[Text]:
    quartiles = f"({row.ratio.lower:.3g}–{row.ratio.upper:.3g})"
    return [
        Text(f"{row.engine_ms.median:.0f}" if row.engine_ms.median >= 100 else f"{row.engine_ms.median:.3g}"),
        Text.assemble((_ratio(row), COLOURS[row.mark]), " ", (quartiles, "dim")),
        Text(_scaling(row), style=COLOURS[row.threads_mark]),
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


def _pairs(rows: list[Row]) -> list[dict[str, Row]]:
    """The rows that differ only in their data, by data."""
    pairs: dict[tuple[str, str, str], dict[str, Row]] = {}
    for row in rows:
        pairs.setdefault((row.operation, row.p, row.rival), {})[row.data] = row
    return list(pairs.values())


def _note(row: Row) -> str:
    smaller = row.rival.startswith("torch.") and row.rival_problem != row.problem
    return f", per element ({row.rival_problem.split(',')[0]} there)" if smaller else ""


def _bounds(target: Target | None) -> tuple[str, str]:
    if target is None:
        return "", ""
    sign = "≥" if target.higher_is_better else "≤"
    return f"{sign} {target.floor:g}", f"{sign} {target.goal:g}"


def _ratio(row: Row) -> str:
    return f"{row.ratio.median:.3g}"


def _scaling(row: Row) -> str:
    return f"{row.threads_ratio.median:.2f}" if row.threads_ratio else ""


def _scaling_target(report: Report) -> str:
    target = report.rows[0].threads_target
    return f" (floor {_bounds(target)[0]}, goal {_bounds(target)[1]})" if target else ""


def _repetitions(report: Report) -> str:
    counts = {row.repetitions for row in report.rows}
    return f"{min(counts)}" if len(counts) == 1 else f"{min(counts)} to {max(counts)}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m linfdist.bench.table", description="Results as a Markdown table.")
    parser.add_argument("results", type=Path, help="a file that `linfdist bench --json` wrote")
    parser.add_argument("--readme", type=Path, help="put the table between this file's marks instead of printing it")
    arguments = parser.parse_args()
    try:
        table = markdown(Report.read(arguments.results))
        if arguments.readme:
            put_into_readme(arguments.readme, table)
        else:
            print(table)
    except (OSError, ValueError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
