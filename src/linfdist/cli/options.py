"""Parameters that several verbs share."""

from pathlib import Path
from typing import Annotated

import typer

ModelPath = Annotated[
    Path, typer.Argument(metavar="MODEL", help="A name of the zoo, a network's file, or the folder of a run.")
]
DataDir = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="The folder of all data sets.",
        show_default="$LINFDIST_DATA, else the platform's cache folder",
    ),
]
Changes = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Set a key of the recipe to another value; repeatable."),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print one line per epoch, no progress bar.")]
