"""The table of speed of docs/engine.md, from what `linfdist bench --json` wrote."""

from linfdist.experiments.bench import Report
from linfdist.experiments.bench.report import (
    DATA_IN_WORDS,
    Mark,
    bounds,
    note,
    pairs,
    ratio,
    repetitions,
    scaling,
    scaling_target,
)

WORDS: dict[Mark, str] = {"goal": " (goal)", "floor": " (floor)", "missed": " (**missed**)", "": ""}


def markdown(report: Report) -> str:
    """Write the table, and below it what it was measured on."""
    threads = report.settings["threads"]
    problem = f"float32, {report.rows[0].problem}, {threads} threads"
    lines = [
        f"| {problem} | floor | goal | {' | '.join(DATA_IN_WORDS)} | 1 → {threads} threads{scaling_target(report)} |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for pair in pairs(report.rows):
        row = next(iter(pair.values()))
        cells = [f"{ratio(pair[data])}{WORDS[pair[data].mark]}" if data in pair else "" for data in DATA_IN_WORDS]
        gained = " and ".join(f"{scaling(row)}×" for row in pair.values() if row.threads_ratio)
        title = f"p = {row.p} {row.operation}: {row.measure} {row.rival}{note(row)}"
        lines.append(f"| {' | '.join([title, *bounds(row.target), *cells, gained])} |")
    machine = report.machine
    commit = f" ({machine.commit[:12]}{'-dirty' * machine.commit.endswith('-dirty')})" if machine.commit else ""
    lines += [
        "",
        f"{machine.cpu}, {machine.cores} cores, {machine.backend}; torch {machine.torch}, "
        f"linfdist {machine.linfdist}{commit}, {report.date[:10]}. "
        f"Medians of ratios, each formed within a repetition that runs every contender once; "
        f"repetitions: {repetitions(report)}.",
        *(f"*{data.capitalize()}*: {text}." for data, text in DATA_IN_WORDS.items()),
        *(f"Not measured: {name} ({reason})." for name, reason in report.skipped.items()),
    ]
    return "\n".join(lines)
