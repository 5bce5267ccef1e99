"""`linfdist tune`: search settings of several methods, for the front of clean against certified accuracy."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from linfdist.errors import console
from linfdist.experiments.tables.rules import TUNED, TUNED_TRIALS, data_sets, parse_budget

from .boundary import checking, say
from .compare import draw
from .options import DataDir
from .reproduce import show

if TYPE_CHECKING:
    from linfdist.recipes import Recipe


def tune(
    data: Annotated[
        str | None,
        typer.Option("--data", metavar="NAME", help="A built-in data set such as mnist, with its quick recipe."),
    ] = None,
    recipe: Annotated[
        str | None,
        typer.Option(metavar="RECIPE", help="In place of --data: a recipe's name, or the path of its .toml file."),
    ] = None,
    budget: Annotated[
        str,
        typer.Option(
            metavar="TIME", help="Training time of each method, such as 90s, 30m or 1h30m, for all of its trials."
        ),
    ] = "30m",
    methods: Annotated[
        str | None,
        typer.Option(metavar="A,B,...", help="Search these methods; ours is dist.", show_default=",".join(TUNED)),
    ] = None,
    trials: Annotated[int, typer.Option(metavar="N", help="How many settings each method tries.")] = TUNED_TRIALS,
    out: Annotated[Path, typer.Option(metavar="DIR", help="The folder for rows and pictures.")] = Path("runs/tune"),
    seed: Annotated[int, typer.Option(metavar="S", help="Seed of weights, order, augmentation and search.")] = 0,
    data_dir: DataDir = None,
) -> None:
    """Try settings of each method in the same time, on held-out training images; show what none of them beats.

    Optuna (extra tune) suggests the settings. Stopped at any moment, the same command resumes; more trials of the same
    length continue the search: --budget 1h --trials 16 after --budget 30m --trials 8.

    Example: linfdist tune --data mnist --budget 10m --methods dist,ibp
    """
    from linfdist.experiments.tables.layout import front_table, searched_how, searches
    from linfdist.experiments.tables.tune import Search, command, run, searched
    from linfdist.report.charts import fronts_chart
    from linfdist.report.plots import front

    given, chosen = _recipe(data, recipe)
    with checking("--budget"):
        seconds = parse_budget(budget)
    with checking("--trials or --seed"):
        search = Search(chosen, seconds, trials, seed)
    names = [] if methods is None else [name.strip() for name in methods.split(",")]
    with checking("--methods"):
        searched(names, chosen)
    rows = run(search, names, out, data_dir, say, show=True)
    finished = [row for row in rows if row.problem is None]
    if not finished:
        raise ValueError(f"no trial came to its end: {rows[-1].problem}")
    console().print(show(front_table(finished)))
    say(searched_how(rows))
    for row in front([row for row in finished if row.ours]):
        say(f"{row.certified:g} % certified, {row.clean:g} % correct: {command(row, given)}")
    draw(lambda: fronts_chart(searches(finished)), out, search.name)


def _recipe(data: str | None, recipe: str | None) -> "tuple[str, Recipe]":
    """Return the recipe that was asked for, and how to name it."""
    from linfdist import recipes
    from linfdist.experiments.tables.rules import quick_recipe

    if (data is None) == (recipe is None):
        raise typer.BadParameter(f"give one of the two: --data ({', '.join(data_sets())}) or --recipe")
    if recipe is not None:
        with checking("--recipe"):
            return recipe, recipes.load(recipe)
    with checking("--data"):
        quick = quick_recipe(str(data))
    return quick.name, quick
