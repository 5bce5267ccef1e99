"""The `linfdist` command: one file per verb, and one place for errors (`boundary.py`)."""

import typer

from . import data, recipes, zoo
from .bench import bench
from .boundary import Verbs
from .certify import certify
from .demo import demo
from .evaluate import evaluate
from .export import export
from .info import info
from .report import report
from .reproduce import reproduce
from .train import train
from .verify import verify

app = typer.Typer(
    cls=Verbs,
    help="l_inf-dist networks: image classifiers whose robustness is proved.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(info)
app.command()(bench)
app.command()(train)
app.command()(evaluate)
app.command()(certify)
app.command()(export)
app.command()(demo)
app.command()(verify)
app.command()(report)
app.command()(reproduce)
app.add_typer(data.app, name="data")
app.add_typer(recipes.app, name="recipes")
app.add_typer(zoo.app, name="zoo")


def main() -> None:
    """Run the command, as the installed script does."""
    app(prog_name="linfdist")
