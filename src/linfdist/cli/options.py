"""Parameters that several verbs share."""

from pathlib import Path
from typing import Annotated

import torch
import typer

from linfdist import machine, recipes
from linfdist.models import zoo
from linfdist.training.distributed import is_first

from .boundary import checking, say


def _complete_model(incomplete: str) -> list[str]:
    """Offer the names of the zoo, and files and folders."""
    folder, _, name = incomplete.rpartition("/")
    files = sorted(Path(f"{folder}/" if folder or incomplete.startswith("/") else ".").glob(f"{name}*"))
    return [each for each in zoo.names() if each.startswith(incomplete)] + [str(file) for file in files]


def _complete_recipe(incomplete: str) -> list[str]:
    return [each for each in recipes.names() if each.startswith(incomplete)]


def chosen_device(name: str) -> torch.device:
    """Find the device of that name, and say which it is, on stderr, if there was a choice; one process speaks."""
    with checking("--device"):
        device = machine.choose_device(name)
    if is_first() and (device.type != "cpu" or machine.gpus()):
        say(f"device: {machine.device_label(device)}{_unused(name, device)}", error=True)
    return device


def _unused(name: str, device: torch.device) -> str:
    """Say why a GPU that is here was not chosen."""
    if name != machine.AUTO or device.type != "cpu" or not (there := machine.gpus()):
        return ""
    return f"; not used: {there[0].device} ({there[0].name}), because {'; '.join(there[0].missing)}"


ModelPath = Annotated[
    Path,
    typer.Argument(
        metavar="MODEL",
        help="A name of the zoo such as mnist-0.3 (`linfdist zoo list`), a network's file, or the folder of a run.",
        autocompletion=_complete_model,
    ),
]
RecipeName = Annotated[
    str,
    typer.Argument(
        metavar="RECIPE",
        help="A recipe's name such as mnist-quick (`linfdist recipes list`), or the path of its .toml file.",
        autocompletion=_complete_recipe,
    ),
]
DataDir = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="The folder of all data sets.",
        show_default="$LINFDIST_DATA, else the platform's cache folder",
    ),
]
Changes = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Set a key of the recipe to another value; repeatable. `linfdist recipes show RECIPE` has the keys.",
    ),
]
DeviceName = Annotated[
    str,
    typer.Option(
        "--device",
        metavar="cpu|cuda[:K]|auto",
        help="Where to compute. auto: on a GPU if a fast backend can use one, else on the CPU.",
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print one line per epoch, no progress bar.")]
