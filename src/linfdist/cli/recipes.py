"""`linfdist recipes`: list and show the recipes that come with the package."""

from typing import TYPE_CHECKING

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from linfdist.errors import cell, console

from .boundary import Verb, VerbGroup, checking
from .options import Changes, RecipeName

if TYPE_CHECKING:
    from linfdist.recipes import Recipe

app = typer.Typer(
    cls=VerbGroup, help="Show the recipes: one per published run, and laptop-size ones.", no_args_is_help=True
)
WIDE, WIDEST = 100, 140  # columns of a terminal that has room for the network, and for the source
TERMS_A_SECOND = 5.5e9  # |x - w| in training, on two cores with AVX2: `mnist-quick` with 21 epochs took 4.5 minutes


@app.command("list", cls=Verb)
def list_() -> None:
    """List every recipe with its data, radius, network and rough time on two cores; laptop-size ones come first.

    Example: linfdist recipes list
    """
    from linfdist import recipes

    screen = console()
    extra = {"network": WIDE, "source": WIDEST}
    columns = ["recipe", "data", "eps", "on two cores", *(name for name in extra if screen.width >= extra[name])]
    table = Table(*columns, box=SIMPLE_HEAD)
    for column in table.columns[:5]:
        column.no_wrap = True
    for recipe in sorted(map(recipes.load, recipes.names()), key=lambda recipe: not recipe.name.endswith("-quick")):
        cells = [f"[bold]{recipe.name}[/]", recipe.data, recipe.eps, _time(recipe)]
        cells += [f"{recipe.model} {recipe.depth} x {recipe.width}", cell(recipe.source)]
        table.add_row(*cells[: len(columns)])
    screen.print(table)


def _time(recipe: "Recipe") -> str:
    """Return how long a training takes, roughly: from what its dist layers compute."""
    from linfdist import data
    from linfdist.recipes.networks import NETWORKS

    info = data.info(recipe.data)
    channels, *sides = info.shape
    height, width = [recipe.crop or side for side in sides]
    inputs = channels * sum(-(-height // size) * -(-width // size) for size in recipe.pool or [1])
    plain = recipe.ending == "plain"
    hidden = recipe.depth - plain
    last = recipe.per_class * info.num_classes if plain else recipe.head
    if NETWORKS[recipe.model].pools:
        terms = inputs * recipe.width + (hidden - 1) * recipe.width**2 + recipe.width * last
    else:  # convolutions: about as many terms in each, and then a dist layer above half of the rows and columns
        above = recipe.dense if plain else 4 * recipe.width
        terms = height * width * recipe.width * (9 * (hidden - 1) * recipe.width + above // 2)
    seconds = terms * info.train * recipe.epochs / TERMS_A_SECOND
    for unit, length in (("days", 86400), ("hours", 3600), ("min", 60)):
        if seconds >= length:
            return f"{float(f'{seconds / length:.1g}'):g} {unit}"
    return "seconds"


@app.command(cls=Verb)
def show(
    name: RecipeName,
    settings: Changes = None,
) -> None:
    """Print a recipe in full, every key with its meaning; the output is a recipe file.

    Example: linfdist recipes show mnist-quick --set width=1024 > mine.toml
    """
    from linfdist import recipes

    with checking("RECIPE"):
        recipe = recipes.load(name)
    with checking("--set"):
        recipe = recipes.override(recipe, settings or [])
    text, screen = recipes.to_toml(recipe), console()
    if screen.is_terminal:
        from rich.syntax import Syntax

        screen.print(Syntax(text, "toml", background_color="default", word_wrap=True))
    else:
        typer.echo(text, nl=False)
