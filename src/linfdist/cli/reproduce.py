"""`linfdist reproduce`: run a table of the paper here, and show it beside the published numbers."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer
from rich.table import Table

from linfdist.errors import cell, console
from linfdist.experiments.tables.plan import SCALES, Scale, numbers
from linfdist.runs.folder import ROWS

from .boundary import say
from .options import AUTO, DataDir, DeviceName, Quiet, chosen_device

if TYPE_CHECKING:
    from linfdist.experiments.tables.layout import TextTable
    from linfdist.experiments.tables.reproduce import Job

COMPARED = Path("results") / "compare.jsonl"
TABLES = {f"table{number}": number for number in numbers()}


def reproduce(
    table: Annotated[str, typer.Argument(metavar="TABLE", help=f"One of {', '.join(TABLES)}.")],
    scale: Annotated[
        str, typer.Option(metavar="|".join(SCALES), help="Recipes as published, or small ones for two cores.")
    ] = "laptop",
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The folder for the runs.", show_default="runs/TABLE-SCALE")
    ] = None,
    rows_file: Annotated[
        Path | None,
        typer.Option("--rows", metavar="FILE", help="The file for results.", show_default=f"DIR/{ROWS}"),
    ] = None,
    seeds: Annotated[int, typer.Option(metavar="N", help="Runs of each row.")] = 1,
    only: Annotated[
        list[str] | None, typer.Option(metavar="ROW", help="Only this recipe; repeatable.", show_default="all")
    ] = None,
    peers: Annotated[
        Path,
        typer.Option(metavar="FILE", help="Rows of `linfdist compare`, shown beside cited methods, if it is there."),
    ] = COMPARED,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List the missing runs, and show the results so far.")
    ] = False,
    device: DeviceName = AUTO,
    data_dir: DataDir = None,
    quiet: Quiet = False,
) -> None:
    """Train and evaluate what has no result yet, then show the table. Stopped, the same command resumes.

    Example: linfdist reproduce table1 --scale laptop --dry-run
    """
    from linfdist.experiments.tables.layout import paper_table
    from linfdist.experiments.tables.reproduce import jobs, missing, run
    from linfdist.experiments.tables.rows import read_compare_rows, read_table_rows

    if table not in TABLES:
        raise typer.BadParameter(f"{table!r} is not one of {', '.join(TABLES)}", param_hint="TABLE")
    if scale not in SCALES:
        raise typer.BadParameter(f"{scale!r} is not one of {', '.join(SCALES)}", param_hint="--scale")
    number, chosen, folder = TABLES[table], cast(Scale, scale), out or Path("runs") / f"{table}-{scale}"
    file = rows_file or folder / ROWS
    wanted = jobs(number, chosen, seeds, only or [])
    if dry_run:
        rows = read_table_rows(file)
        _announce(wanted, missing(wanted, rows))
    else:
        rows = run(wanted, folder, file, data_dir, quiet, say, chosen_device(device))
    console().print(show(paper_table(number, chosen, rows, read_compare_rows(peers))))


def _announce(wanted: "list[Job]", left: "list[Job]") -> None:
    from linfdist.recipes import setting

    for job in wanted:
        settings = " ".join(setting(key, value) for key, value in job.planned.settings.items())
        say(f"{'to run' if job in left else 'done  '}  {job.name}  {settings}".rstrip())


def show(comparison: "TextTable") -> Table:
    """Lay the comparison out for a terminal."""
    shown = Table(title=cell(comparison.title), box=None, padding=(0, 2, 0, 0))
    for k, heading in enumerate(comparison.headings):
        number = k >= comparison.words
        shown.add_column(
            heading.replace(", ", "\n"), justify="right" if number else "left", no_wrap=number or heading == "data"
        )
    for line in comparison.lines:
        shown.add_row(*map(cell, line))
    return shown
