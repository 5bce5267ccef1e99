"""`linfdist report`: show a run as one page, and its charts as PNGs."""

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from linfdist.report import write

from .boundary import say


def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A folder that `linfdist evaluate` wrote into.")],
    out: Annotated[Path | None, typer.Option(metavar="DIR", show_default="RUN/report")] = None,
    open_: Annotated[bool, typer.Option("--open", help="Show the page in the browser.")] = False,
) -> None:
    """Write report.html, one self-contained page, and the charts as PNGs. Needs matplotlib, the extra `report`."""
    page = write(run, out)
    say(f"report: {page}")
    if open_:
        webbrowser.open(page.resolve().as_uri())
