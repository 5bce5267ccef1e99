"""`linfdist report`: show a run as one page, and its charts as PNGs."""

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from linfdist.models import zoo
from linfdist.report import write

from .boundary import say


def report(
    run: Annotated[
        Path,
        typer.Argument(metavar="RUN", help="A folder that `linfdist evaluate` wrote into: runs/mnist-0.3."),
    ],
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The folder for page and charts.", show_default="RUN/report")
    ] = None,
    open_: Annotated[bool, typer.Option("--open", help="Show the page in the browser.")] = False,
) -> None:
    """Write report.html, one self-contained page, and the charts as PNGs. Needs matplotlib, the extra `report`.

    Example: linfdist report runs/mnist-0.3 --open
    """
    _check(run)
    page = write(run, out)
    say(f"report: {page}")
    if open_:
        webbrowser.open(page.resolve().as_uri())


def _check(run: Path) -> None:
    """Raise ValueError if this is a network: a report is about an evaluation of it."""
    name = str(run)
    if not run.exists() and name in zoo.names():
        raise ValueError(
            f"{name} is a network, and a report is about an evaluation: "
            f"linfdist evaluate {name}, then linfdist report runs/{name}"
        )
    if run.is_file():
        raise ValueError(f"{name} is a file: give the folder that `linfdist evaluate` wrote into")
