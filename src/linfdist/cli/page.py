"""The page of a MODEL, with what is known of it: the names of its classes, test images, the radius it is for."""

from pathlib import Path

from linfdist import data
from linfdist.data import DataError, Dataset
from linfdist.eps import parse_eps
from linfdist.exact import FrozenNet
from linfdist.export.html import to_html

from .boundary import say
from .model import Model


def write_page(
    model: Model, frozen: FrozenNet, target: Path, dataset: str | None, eps: str | None, data_dir: Path | None
) -> None:
    """Write the page of a frozen network; what it does without, for want of data, is said.

    An exact network goes onto the page as its file is, byte for byte.
    """
    test = _test_images(model, frozen, dataset, data_dir)
    content = model.file.read_bytes() if model.network.exact else frozen
    folder = model.folder.parent if model.folder.name == "exact" else model.folder
    name = folder.resolve().name or model.folder.name
    to_html(content, target, name, None if test is None else test.classes, test, eps or _radius(model, frozen))


def _test_images(model: Model, frozen: FrozenNet, dataset: str | None, data_dir: Path | None) -> Dataset | None:
    """Load the test images given, else those of the recipe, else those that the network was measured on."""
    measured = _measured(frozen, "data")  # of a file that anybody may have written: a name is looked up, a path is not
    name = dataset or (model.recipe.data if model.recipe else measured if measured in data.NAMES else None)
    if name is None:
        say("no test images on the page: there is no recipe beside the model, and no --data")
        return None
    try:
        test = data.load(name, "test", data_dir)
    except DataError as error:
        if dataset is not None:
            raise
        say(f"no test images on the page: {error}")
        return None
    if tuple(test.images.shape[1:]) != frozen.shape or len(test.classes) != frozen.classes:
        raise ValueError(
            f"{name} has {len(test.classes)} classes and images {tuple(test.images.shape[1:])}, the network has "
            f"{frozen.classes} and {frozen.shape}: give the data it was trained on with --data"
        )
    return test


def _radius(model: Model, frozen: FrozenNet) -> str | None:
    """Find the radius of the recipe, else the one that the network was measured at."""
    if model.recipe is not None:
        return model.recipe.eps
    measured = _measured(frozen, "eps")
    try:
        parse_eps(measured or "none")
    except ValueError:
        return None
    return measured


def _measured(frozen: FrozenNet, key: str) -> str | None:
    accuracy = frozen.facts.get("accuracy")
    found = accuracy.get(key) if isinstance(accuracy, dict) else None
    return found if isinstance(found, str) else None
