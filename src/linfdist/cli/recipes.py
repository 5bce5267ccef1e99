"""`linfdist recipes`: list and show the recipes that come with the package."""

import typer
from rich.box import SIMPLE_HEAD
from rich.syntax import Syntax
from rich.table import Table

from linfdist import data, recipes
from linfdist.text import cell, console

from .boundary import Verb, VerbGroup, checking
from .options import Changes, RecipeName

app = typer.Typer(
    cls=VerbGroup, help="Show the recipes: one per published run, and laptop-size ones.", no_args_is_help=True
)
WIDE = 120  # columns of a terminal that has room for the source
TERMS_A_SECOND = 5.5e9  # |x - w| in training, on two cores with AVX2: `mnist-quick` with 21 epochs took 4.5 minutes


@app.command("list", cls=Verb)
def list_() -> None:
    """List every recipe with its data, radius, network and rough time on two cores; laptop-size ones come first.

    Example: linfdist recipes list
    """
    screen = console()
    wide = screen.width >= WIDE
    columns = ["recipe", "data", "eps", "network", "on two cores", *(["source"] if wide else [])]
    table = Table(*columns, box=SIMPLE_HEAD)
    for column in table.columns[:5]:
        column.no_wrap = True
    for recipe in sorted(map(recipes.load, recipes.names()), key=lambda recipe: not recipe.name.endswith("-quick")):
        network = f"{recipe.model} {recipe.depth} x {recipe.width}"
        source = [cell(recipe.source)] if wide else []
        table.add_row(f"[bold]{recipe.name}[/]", recipe.data, recipe.eps, network, _time(recipe), *source)
    screen.print(table)


def _time(recipe: recipes.Recipe) -> str:
    """Return how long a training takes, roughly: from what its dist layers compute."""
    info = data.info(recipe.data)
    channels, *sides = info.shape
    height, width = [recipe.crop or side for side in sides]
    if recipe.model == "conv_dist_net_mlp":
        return "days"
    inputs = channels * sum(-(-height // size) * -(-width // size) for size in recipe.pool or [1])
    hidden = recipe.depth - (recipe.model == "dist_net")
    last = recipe.per_class * info.num_classes if recipe.model == "dist_net" else recipe.head
    terms = inputs * recipe.width + (hidden - 1) * recipe.width**2 + recipe.width * last
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
    with checking("RECIPE"):
        recipe = recipes.load(name)
    with checking("--set"):
        recipe = recipes.override(recipe, settings or [])
    text, screen = recipes.to_toml(recipe), console()
    if screen.is_terminal:
        screen.print(Syntax(text, "toml", background_color="default", word_wrap=True))
    else:
        typer.echo(text, nl=False)
