"""`linfdist train`: train a network by a recipe, into the folder of a run."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from linfdist.runs.folder import MODEL, RECIPE

from .boundary import checking, is_first, say
from .options import AUTO, Changes, DataDir, DeviceName, Quiet, RecipeName, chosen_device

if TYPE_CHECKING:
    from linfdist.recipes import Recipe


def train(
    name: RecipeName,
    settings: Changes = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The run's folder.", show_default="runs/RECIPE")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue from the last checkpoint and its settings.")
    ] = False,
    device: DeviceName = AUTO,
    data_dir: DataDir = None,
    quiet: Quiet = False,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Write live curves into DIR/tensorboard.")] = False,
) -> None:
    """Train a network. Ctrl-C stops with a checkpoint; under torchrun, several processes share the work.

    Example: linfdist train mnist-quick --set width=1024 --set epochs=100
    """
    from linfdist import recipes
    from linfdist.evaluation import watch
    from linfdist.training import train as run

    with checking("RECIPE, --set"):
        recipe = recipes.load(name)
        folder = out or Path("runs") / recipe.name
        recipe = _resumed(recipe, settings or [], folder) if resume else recipes.override(recipe, settings or [])
    where = chosen_device(device)
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
        say(f"next: linfdist evaluate {shlex.quote(str(folder))}")


def _resumed(recipe: "Recipe", settings: list[str], folder: Path) -> "Recipe":
    """Return the recipe of the run in this folder; settings that differ from it will be refused."""
    from linfdist import recipes
    from linfdist.recipes.schema import PHASES

    given = recipes.override(recipe, settings)
    try:
        begun = recipes.load(str(folder / RECIPE))
    except (OSError, recipes.RecipeError):
        return given  # nothing was begun, or what is there will be refused
    if begun.name != recipe.name:
        return given
    keys = {setting.partition("=")[0].strip() for setting in settings}
    if "epochs" in keys:
        keys = keys - {"epochs"} | set(PHASES)
    same = all(getattr(given, key) == getattr(begun, key) for key in keys)
    return begun if same else recipes.override(begun, settings)
