"""The `linfdist` command: one verb a file."""

import typer

from . import data, recipes
from .bench import bench
from .evaluate import evaluate
from .info import info
from .train import train

app = typer.Typer(
    help="l_inf-dist networks: image classifiers whose robustness is proved.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(info)
app.command()(bench)
app.command()(train)
app.command()(evaluate)
app.add_typer(data.app, name="data")
app.add_typer(recipes.app, name="recipes")


def main() -> None:
    app(prog_name="linfdist")
