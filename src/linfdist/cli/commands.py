"""All verbs of the `linfdist` command, put together."""

from typing import Annotated

import typer

import linfdist

from . import data, recipes, zoo
from .bench import bench
from .boundary import Verb, Verbs, say
from .certify import certify
from .compare import compare
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
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},  # of every verb
)


def _show_version(wanted: bool) -> None:
    if wanted:
        say(f"linfdist {linfdist.__version__}")
        raise typer.Exit


@app.callback()
def verbs(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Print the version and exit.")
    ] = False,
) -> None:
    """ℓ∞-dist networks: classifiers whose robustness is proved.

    Networks that come with the package, such as mnist-0.3, are listed by `linfdist zoo list`.

    Example: linfdist certify mnist-0.3 seven.png
    """


for verb in (info, bench, train, evaluate, certify, export, demo, verify, report, reproduce, compare):
    app.command(cls=Verb)(verb)
app.add_typer(data.app, name="data")
app.add_typer(recipes.app, name="recipes")
app.add_typer(zoo.app, name="zoo")
