"""`linfdist zoo`: list and show the trained networks that come with the package."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from linfdist.data import NAMES
from linfdist.eps import down, nearest, parse_eps, up, written
from linfdist.errors import cell, closest, console
from linfdist.models.zoo import FILES, card, names

from .boundary import Verb, VerbGroup, checking, say

if TYPE_CHECKING:
    from linfdist.models.zoo.cards import Card

app = typer.Typer(
    cls=VerbGroup, help="Trained networks, ready to load: what they are and what was measured.", no_args_is_help=True
)
Folder = Annotated[Path | None, typer.Option(metavar="DIR", help="Another zoo.", show_default="the package's own")]


@app.command("list", cls=Verb)
def list_(
    data: Annotated[str | None, typer.Option(metavar="NAME", help="Only networks for this data set.")] = None,
    eps: Annotated[str | None, typer.Option(metavar="E", help="Only networks for this radius: 0.3 or 8/255.")] = None,
    folder: Folder = None,
) -> None:
    """List the networks with what is proved of them, beside the paper's number for the same kind of network.

    Networks for the same data and radius stand together, those with the highest certified accuracy first.

    Example: linfdist zoo list --data mnist --eps 0.3
    """
    from linfdist.report.published import paper_certified

    cards = [card(name, folder) for name in names(folder)]
    if data is not None and data not in (known := sorted({each.data for each in cards} | set(NAMES))):
        raise typer.BadParameter(
            f"unknown data set {data}; the data sets are {', '.join(known)}{closest(data, known)}", param_hint="--data"
        )
    with checking("--eps"):
        radius = None if eps is None else parse_eps(eps)
    chosen = [each for each in cards if data in (None, each.data) and radius in (None, parse_eps(each.eps))]
    table = Table(box=SIMPLE_HEAD)
    table.add_column("name", no_wrap=True, min_width=max((len(each.name) for each in chosen), default=0))
    table.add_column("data")
    table.add_column("eps")
    for heading in ("clean", "certified", "paper", "MB"):
        table.add_column(heading, justify="right")
    for each in sorted(chosen, key=lambda each: (each.data, parse_eps(each.eps), -each.certified)):
        paper = paper_certified(each.data, each.eps, each.recipe["model"])
        size = ((folder or FILES) / f"{each.name}.safetensors").stat().st_size
        table.add_row(
            f"[bold]{each.name}[/]", cell(each.data), cell(each.eps), nearest(each.clean, 2),
            down(written(each.certified), 2), "–" if paper is None else str(paper), f"{size / 1e6:.1f}",
        )  # fmt: skip
    if table.row_count:
        console().print(table)
    elif cards:
        there = sorted({(each.data, parse_eps(each.eps), each.eps) for each in cards})
        say("no such network; there are networks for", *(f"  {name} at {text}" for name, _, text in there))
    else:
        say(f"no networks in {folder or FILES}")


@app.command(cls=Verb)
def show(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="A name that `linfdist zoo list` shows, such as mnist-0.3.",
            autocompletion=lambda incomplete: [each for each in names() if each.startswith(incomplete)],
        ),
    ],
    folder: Folder = None,
) -> None:
    """Show the card of a network.

    Example: linfdist zoo show mnist-0.3
    """
    each = card(name, folder)
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for key, value in _lines(each).items():
        table.add_row(f"[bold]{key}[/]", "\n".join(map(cell, [value] if isinstance(value, str) else value)))
    console().print(table)


def _lines(each: "Card") -> dict[str, str | list[str]]:
    """Collect what a card says, lists with a line for each.

    What is proved is never rounded up, what survives attacks never down.
    """
    recipe = each.recipe
    return {
        "name": each.name,
        "data": f"{each.data}, {each.n:,} test images",
        "eps": each.eps,
        "clean": f"{nearest(each.clean, 2)} %",
        "PGD-20": f"{up(written(each.pgd20.percent), 2)} %",
        "strongest attack": f"{up(written(each.strongest.percent), 2)} % ({each.strongest.attack})",
        "certified": f"{down(written(each.certified), 2)} % ({each.method})",
        "mean radius": down(each.mean_radius, 4),
        "attacked": each.strongest.images,
        "network": f"{recipe['model']}, depth {recipe['depth']}, width {recipe['width']}{each.mean_in_words}",
        "parameters": f"{each.parameters:,}",
        "recipe": f"{recipe['name']}: {recipe['source'].split('; changed')[0]}",
        "again": [*each.before, _again(recipe)],
        "training": f"{each.hours:g} hours, seed {', '.join(map(str, each.seeds))}; {each.machine}; {each.date}",
        "sha256": each.sha256,
    }


def _again(recipe: dict[str, Any]) -> str:
    from linfdist.recipes import Recipe, command

    try:
        return command(Recipe.model_validate(recipe))
    except ValueError:  # a recipe of another version, or of somebody's own
        return "not by a recipe of this package"
