"""Parameters that several verbs share."""

from pathlib import Path
from typing import Annotated

import typer

from linfdist import recipes, zoo


def _complete_model(incomplete: str) -> list[str]:
    """Offer the names of the zoo, and files and folders."""
    folder, _, name = incomplete.rpartition("/")
    files = sorted(Path(f"{folder}/" if folder or incomplete.startswith("/") else ".").glob(f"{name}*"))
    return [each for each in zoo.names() if each.startswith(incomplete)] + [str(file) for file in files]


def _complete_recipe(incomplete: str) -> list[str]:
    return [each for each in recipes.names() if each.startswith(incomplete)]


ModelPath = Annotated[
    Path,
    typer.Argument(
        metavar="MODEL",
        help="A name of the zoo such as mnist-0.3 (`linfdist zoo list`), a network's file, or the folder of a run.",
        autocompletion=_complete_model,
    ),
]
RecipeName = Annotated[
    str,
    typer.Argument(
        metavar="RECIPE",
        help="A recipe's name such as mnist-quick (`linfdist recipes list`), or the path of its .toml file.",
        autocompletion=_complete_recipe,
    ),
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
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Set a key of the recipe to another value; repeatable. `linfdist recipes show RECIPE` has the keys.",
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print one line per epoch, no progress bar.")]
