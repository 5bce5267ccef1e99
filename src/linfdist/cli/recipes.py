"""`linfdist recipes`: list and show the recipes that come with the package."""

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.syntax import Syntax
from rich.table import Table

from linfdist import recipes

from .boundary import Verb, VerbGroup, checking
from .options import Changes, RecipeName

app = typer.Typer(
    cls=VerbGroup, help="Show the recipes: one per published run, and laptop-size ones.", no_args_is_help=True
)
WIDE = 120  # columns of a terminal that has room for the network and the loss


@app.command("list", cls=Verb)
def list_() -> None:
    """List every recipe with its radius, its length and its source.

    Example: linfdist recipes list
    """
    console = Console()
    wide = console.width >= WIDE
    table = Table("recipe", "eps", *(["network", "loss"] if wide else []), "epochs", "source", box=SIMPLE_HEAD)
    for column in table.columns[:-1]:
        column.no_wrap = True
    for name in recipes.names():
        recipe = recipes.load(name)
        details = [f"{recipe.model} {recipe.depth} x {recipe.width}", recipe.loss] if wide else []
        table.add_row(f"[bold]{name}[/]", recipe.eps, *details, f"{recipe.epochs:g}", escape(recipe.source))
    console.print(table)


@app.command(cls=Verb)
def show(
    name: RecipeName,
    settings: Changes = None,
) -> None:
    """Print a recipe in full, every key with its meaning; the output is a recipe file.

    Example: linfdist recipes show mnist-quick --set width=1024 > mine.toml
    """
    with checking("RECIPE"):
        recipe = recipes.load(name)
    with checking("--set"):
        recipe = recipes.override(recipe, settings or [])
    text, console = recipes.to_toml(recipe), Console()
    if console.is_terminal:
        console.print(Syntax(text, "toml", background_color="default", word_wrap=True))
    else:
        typer.echo(text, nl=False)
