"""`linfdist evaluate`: clean and certified accuracy of a network, one row per image."""

from decimal import ROUND_DOWN, Decimal
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from linfdist import data, models, recipes
from linfdist.eps import parse_eps
from linfdist.evaluate import evaluate as run


def evaluate(
    source: Annotated[Path, typer.Argument(metavar="MODEL_OR_RUN", help="A model.safetensors, or a run's folder.")],
    eps: Annotated[
        str | None, typer.Option(metavar="E", help="Radius, e.g. 0.3 or 8/255.", show_default="the recipe's")
    ] = None,
    dataset: Annotated[str | None, typer.Option("--data", metavar="NAME", show_default="the recipe's")] = None,
    split: Annotated[str, typer.Option(metavar="train|test")] = "test",
    limit: Annotated[int | None, typer.Option(metavar="N", min=1, help="Only the first N images.")] = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", show_default="the run's folder")] = None,
    data_dir: Annotated[Path | None, typer.Option(metavar="DIR", help="Where data sets are.")] = None,
) -> None:
    """Write rows.jsonl and summary.json, and show the summary. Radii are proved by the margin (Fact 3.6)."""
    console = Console(stderr=True)
    try:
        network = models.load(source)
        folder = source if source.is_dir() else source.parent
        recipe = recipes.load(folder / "recipe.json") if (folder / "recipe.json").exists() else None
        name, radius = dataset or (recipe and recipe.data), eps or (recipe and recipe.eps)
        if not name or not radius:
            raise ValueError(f"{folder} has no recipe.json: give --data and --eps")
        parse_eps(radius)
        images = data.load(name, split=split, data_dir=data_dir)
        if limit:
            images = data.Dataset(images.name, images.images[:limit], images.labels[:limit], images.classes)
        target = out or folder
        target.mkdir(parents=True, exist_ok=True)
        model_file = source / "model.safetensors" if source.is_dir() else source
        summary = run(network, images, radius, target, model_file)
    except (OSError, TypeError, ValueError, data.DataError) as error:
        console.print(f"error: {error}", markup=False, soft_wrap=True)
        raise typer.Exit(1) from None
    table = Table(title=f"{name} {split}, eps = {radius}, {summary['n']:,} images")
    for heading in ("clean", "certified", "mean radius"):
        table.add_column(heading, justify="right")
    table.add_row(f"{summary['clean']:.2f} %", f"{_down(summary['certified'], 2)} %", _down(summary["mean_radius"], 4))
    Console().print(table)
    Console().print(f"rows and summary in {target}", markup=False, highlight=False)


def _down(value: float, digits: int) -> str:
    """What is proved is never rounded up."""
    return str(Decimal(value).quantize(Decimal(1).scaleb(-digits), rounding=ROUND_DOWN))
