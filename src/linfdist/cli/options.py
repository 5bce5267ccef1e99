"""Parameters that several verbs share; the MODEL that a command is given."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from linfdist.models import zoo
from linfdist.runs.folder import CHECKPOINT, METRICS, MODEL, RECIPE

from .boundary import checking, is_first, say

if TYPE_CHECKING:  # help and completion do without torch, and most without pydantic
    import torch

    from linfdist.models import Network
    from linfdist.recipes import Recipe

AUTO = "auto"  # that of `machine`


def _complete_model(incomplete: str) -> list[str]:
    """Offer the names of the zoo, and files and folders."""
    folder, _, name = incomplete.rpartition("/")
    files = sorted(Path(f"{folder}/" if folder or incomplete.startswith("/") else ".").glob(f"{name}*"))
    return [each for each in zoo.names() if each.startswith(incomplete)] + [str(file) for file in files]


def _complete_recipe(incomplete: str) -> list[str]:
    from linfdist import recipes

    return [each for each in recipes.names() if each.startswith(incomplete)]


def chosen_device(name: str) -> "torch.device":
    """Find the device of that name; if there was a choice, one process prints it to stderr."""
    from linfdist.ops import machine

    with checking("--device"):
        device = machine.choose_device(name)
    if is_first() and (device.type != "cpu" or machine.gpus()):
        say(f"device: {machine.device_label(device)}{_unused(name, device)}", error=True)
    return device


def _unused(name: str, device: "torch.device") -> str:
    """Say why an existing GPU was not chosen."""
    from linfdist.ops import machine

    if name != AUTO or device.type != "cpu" or not (there := machine.gpus()):
        return ""
    return f"; not used: {there[0].device} ({there[0].name}), because {'; '.join(there[0].missing)}"


ModelName = Annotated[
    str,
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


@dataclass(frozen=True)
class Model:
    """A network, float or exact, the file it comes from, the folder for results, and the recipe, if there is one."""

    network: "Network"
    file: Path
    folder: Path
    recipe: "Recipe | None"

    def check_not_overwritten(self, target: Path) -> None:
        """Raise ValueError if writing to `target` would destroy the network or the run that it comes from."""
        kept = (self.file, *(self.folder / name for name in (MODEL, RECIPE, CHECKPOINT, METRICS)))
        if any(target.exists() and each.exists() and target.samefile(each) for each in kept):
            raise ValueError(f"{target} belongs to the network or its run: choose another file to write to")

    def data(self, given: str | None) -> str:
        """Choose the data set: the given one, else the recipe's, else the one that an exact network states."""
        from linfdist.data import NAMES

        stated = self.network.stated("data")
        return self._choose(given, self.recipe.data if self.recipe else stated if stated in NAMES else None, "--data")

    def eps(self, given: str | None) -> str:
        """Choose the radius, as text: the given one, else the recipe's, else the one that an exact network states."""
        return self._choose(given, self.recipe.eps if self.recipe else self.network.stated("eps"), "--eps")

    def _choose(self, given: str | None, own: str | None, option: str) -> str:
        if given is not None:
            return given
        if own is None:
            raise ValueError(
                f"{self.file} does not say which {option} to take, and there is no {RECIPE} beside it: give {option}"
            )
        return own


def open_model(name: str | Path, device: str = "cpu") -> Model:
    """Open a network's file, the folder of a finished run, or a network of the zoo, whose results go to runs/NAME.

    device: where to compute, as in `--device`; exact networks compute on the CPU.

    Results of an exact network go to a folder beside its file with the file's name without its ending, or with another
    ending if that is the folder of a run. Raises OSError or ValueError that says what is wrong.
    """
    from linfdist import recipes
    from linfdist.certificates import on_device
    from linfdist.models import load
    from linfdist.models.loading import HUB

    name = str(name)
    network, path = load(name), Path(name)
    if network.exact and device not in ("cpu", AUTO):
        raise ValueError(f"--device {device}: {name} is an exact network, which computes on the CPU")
    if device != "cpu" and not network.exact:
        network = on_device(network, chosen_device(device))
    if name in zoo.names():
        if path.exists():
            say(f"{name} is taken from the zoo; write ./{name} for what is here", error=True)
        return Model(network, zoo.find(name), Path("runs") / name, recipes.Recipe.model_validate(zoo.card(name).recipe))
    if name.startswith(HUB):
        return Model(network, path, Path("runs") / re.split("[/@#]", name)[1], None)
    folder = path if path.is_dir() else path.parent
    recipe_file = folder / RECIPE
    recipe = recipes.load(recipe_file) if recipe_file.exists() else None
    if network.exact:
        folder = path.with_suffix("")
        if (folder / MODEL).exists() or (folder / CHECKPOINT).exists():
            folder = path.with_suffix(".exact")
    return Model(network, path / MODEL if path.is_dir() else path, folder, recipe)
