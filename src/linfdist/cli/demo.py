"""`linfdist demo`: a certified classifier in the browser."""

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from .boundary import say
from .export import Format, export
from .options import DataDir, ModelName


def demo(
    model: ModelName = "mnist-0.3",
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The page to write.", show_default="beside the model")
    ] = None,
    opened: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in the browser.")] = True,
    data_dir: DataDir = None,
) -> None:
    """Draw digits and see what is proved about them: write a network as one page, and open it in the browser.

    It is the page of `linfdist export MODEL --format html`: one file that needs no server, to keep or to send.

    Example: linfdist demo mnist-0.3
    """
    page = export(model, Format.html, out, data_dir=data_dir)
    if opened and not webbrowser.open(page.resolve().as_uri()):
        say("no browser could be opened here: open the page in one yourself")
