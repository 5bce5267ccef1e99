"""`linfdist train`: train a network by a recipe, into the folder of a run."""

from pathlib import Path
from typing import Annotated

import typer

from linfdist import recipes
from linfdist.evaluation import watch
from linfdist.machine import AUTO
from linfdist.runs.folder import MODEL
from linfdist.training import train as run
from linfdist.training.distributed import is_first

from .boundary import checking, say
from .options import Changes, DataDir, DeviceName, Quiet, RecipeName, chosen_device


def train(
    name: RecipeName,
    settings: Changes = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The run's folder.", show_default="runs/RECIPE")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume from the last checkpoint, if there is one.")] = False,
    device: DeviceName = AUTO,
    data_dir: DataDir = None,
    quiet: Quiet = False,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Live curves in DIR/tensorboard.")] = False,
) -> None:
    """Train a network. Ctrl-C stops with a checkpoint; under torchrun, several processes share the work.

    Example: linfdist train mnist-quick --set width=1024 --set epochs=100
    """
    with checking("RECIPE, --set"):
        recipe = recipes.override(recipes.load(name), settings or [])
    where, folder = chosen_device(device), out or Path("runs") / recipe.name
    finished = (folder / MODEL).exists()
    run(
        recipe,
        folder,
        resume=resume,
        data_dir=data_dir,
        quiet=quiet,
        tensorboard=tensorboard,
        evaluate=watch(recipe),
        device=where,
    )
    if is_first():
        say(f"{folder} was finished before" if finished else f"finished: {folder}")
