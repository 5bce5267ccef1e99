"""The results as tables for the terminal."""

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from .results import Growth, Mark, RaceRow, Report, Target
from .suite import AS_SPECIFIED, NOTHING_TO_PRUNE

COLOURS: dict[Mark, str] = {"goal": "green", "floor": "yellow", "missed": "red", "": ""}

DATA = {
    AS_SPECIFIED: "x uniform in [0, 1] and w standard normal: the engine proves that most weights cannot matter for "
    "any row of the batch, and leaves them out (at p = ∞ the results keep their bits; at finite p what is left out is "
    "below 2⁻³² of the largest term)",
    NOTHING_TO_PRUNE: "x = 3 · standard normal, where every weight counts",
}


def terminal(report: Report) -> RenderableType:
    """The tables that `linfdist bench` shows."""
    machine, threads = report.machine, report.settings["threads"]
    heading = (
        f"{machine.cpu}, {threads} of {machine.cores} cores, {machine.backend}; repetitions: {repetitions(report)}"
    )
    sections: dict[str, list[RaceRow]] = {}
    for row in report.rows:
        sections.setdefault(f"{row.operation}: {row.measure} {row.rival}{note(row)}", []).append(row)
    notes = [Text(f"{data}: {text}", style="dim") for data, text in DATA.items()]
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
    for data in DATA:
        table.add_column("ms", justify="right", style="dim", no_wrap=True)
        table.add_column(data, justify="right", min_width=13, overflow="fold")
        table.add_column(f"1→{threads}", justify="right")
    for pair in pairs(rows):
        row = next(iter(pair.values()))
        cells: list[Text] = []
        for data in DATA:
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
    """Put the rows together that differ only in their data."""
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
