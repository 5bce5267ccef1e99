"""`linfdist compare`: all methods side by side, with the same training time for each."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from linfdist.errors import console
from linfdist.experiments.tables.rules import TRIALS, TRIALS_SHARE, Rules, data_sets, parse_budget
from linfdist.files import write_atomically
from linfdist.runs.folder import ROWS

from .boundary import checking, say
from .options import DataDir
from .reproduce import show

if TYPE_CHECKING:
    from collections.abc import Callable

    from linfdist.report.charts import Chart


def compare(
    data: Annotated[
        str,
        typer.Option(
            "--data", metavar="NAME", help="A built-in data set such as mnist, whose quick recipe does not crop."
        ),
    ],
    budget: Annotated[
        str,
        typer.Option(
            metavar="TIME",
            help=f"Training time of each method, such as 90s, 20m or 1h30m; {TRIALS_SHARE:.0%} of it for its trials.",
        ),
    ],
    methods: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,...", help="Compare only these methods, separated by commas; ours is dist.", show_default="all"
        ),
    ] = None,
    trials: Annotated[
        int, typer.Option(metavar="N", help="How many settings each method tries on held-out images.")
    ] = TRIALS,
    out: Annotated[Path, typer.Option(metavar="DIR", help="The folder for networks and rows.")] = Path("runs/compare"),
    rows_file: Annotated[
        Path | None,
        typer.Option("--rows", metavar="FILE", help="The file for results.", show_default=f"DIR/{ROWS}"),
    ] = None,
    limit: Annotated[int | None, typer.Option(metavar="N", help="Only the first N test images.")] = None,
    seed: Annotated[int, typer.Option(metavar="S", help="Seed of weights, order and augmentation.")] = 0,
    data_dir: DataDir = None,
) -> None:
    """Train, certify and attack by every method that has no row yet; show a table, and draw certified against time.

    Stopped at any moment, the same command resumes.

    Example: linfdist compare --data mnist --budget 20m --methods dist,ibp,crown-ibp
    """
    from linfdist.experiments.tables.compare import run
    from linfdist.experiments.tables.contenders import chosen
    from linfdist.experiments.tables.layout import accuracy_table, cost_table, panels, stated
    from linfdist.experiments.tables.rows import read_compare_rows
    from linfdist.report.charts import compared_chart

    with checking("--budget"):
        seconds = parse_budget(budget)
    with checking("--data" if data not in data_sets() else "--trials, --seed or --limit"):
        rules = Rules(data, seconds, trials, seed, limit)
    names = [] if methods is None else [name.strip() for name in methods.split(",")]
    with checking("--methods or --trials"):
        chosen(names, trials)
    kept = rows_file or out / ROWS
    rows = run(rules, names, out, kept, data_dir, say, show=True)
    for table in (accuracy_table(rows), cost_table(rows)):
        console().print(show(table))
    say(stated(rows))
    everything = [*read_compare_rows(kept), *rows]  # of two rows the last counts, and that is the one of today's recipe
    panel = next(panel for panel in panels(everything) if rows[0] in panel.rows)
    draw(lambda: compared_chart([panel]), out / rules.name, "compare")


def draw(chart: "Callable[[], Chart]", folder: Path, name: str) -> None:
    """Keep a picture on white and on dark; print what is missing if it cannot be drawn."""
    try:
        drawn = chart()
    except ImportError as error:
        say(f"no picture: {error}")
        return
    write_atomically(folder / f"{name}.png", drawn.light)
    write_atomically(folder / f"{name}-dark.png", drawn.dark)
    say(f"picture: {folder / name}.png, and {name}-dark.png for dark pages")
