"""`linfdist train`: a recipe into the folder of a run."""

import functools
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from linfdist import recipes
from linfdist.data import DataError
from linfdist.evaluate import watch
from linfdist.training import Diverged, Interrupted, LostWorker
from linfdist.training import train as run
from linfdist.training.distributed import is_first


def train(
    name: Annotated[str, typer.Argument(metavar="RECIPE", help="A recipe's name, or the path of its file.")],
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Another value for a key; repeatable.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The run's folder.", show_default="runs/RECIPE")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the last checkpoint, if there is one.")] = False,
    data_dir: Annotated[Path | None, typer.Option(metavar="DIR", help="Where data sets are.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="One line an epoch, no progress bar.")] = False,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Live curves in DIR/tensorboard.")] = False,
) -> None:
    """Train a network. Ctrl-C stops with a checkpoint; under torchrun, several processes share the work."""
    try:
        recipe = recipes.override(recipes.load(name), settings or [])
    except recipes.RecipeError as error:
        raise typer.BadParameter(str(error)) from error
    folder = out or Path("runs") / recipe.name
    finished = (folder / "model.safetensors").exists()
    try:
        run(
            recipe,
            folder,
            resume=resume,
            data_dir=data_dir,
            quiet=quiet,
            tensorboard=tensorboard,
            evaluate=functools.partial(watch, eps=recipe.eps),
        )
    except Interrupted as stop:
        if is_first():
            Console(stderr=True).print(str(stop), markup=False, soft_wrap=True)
        raise typer.Exit(130) from None
    except (DataError, Diverged, ImportError, LostWorker, OSError, ValueError) as error:
        Console(stderr=True).print(f"error: {error}", markup=False, soft_wrap=True)
        raise typer.Exit(1) from None
    if is_first():
        text = f"{folder} was finished before" if finished else f"finished: {folder}"
        Console().print(text, markup=False, highlight=False, soft_wrap=True)
