"""Training on images in memory: `linfdist.train`."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from .. import data, recipes
from ..data import Dataset, Info
from ..data.folder import measure
from ..data.samples import as_labels, as_samples, check_range, names_in, read
from ..eps import Eps, as_text, parse_eps
from ..errors import described
from ..models import PixelNet
from ..ops import machine
from ..recipes import Recipe
from .distributed import Workers
from .objective import keys_of_networks
from .trainer import Progress, Trainer

NAME = "the images"


def train(
    recipe: str | Path | Recipe,
    images: Any,
    labels: Any = None,
    *,
    network: object = None,
    classes: Sequence[str] | None = None,
    settings: Mapping[str, object] | None = None,
    callback: Callable[[Progress], object] | None = None,
    device: str | torch.device = machine.AUTO,
) -> PixelNet:
    """Train a network on images or rows of features in memory; return it in eval mode, on the CPU, for [0, 1].

    recipe: the name of a recipe, the path of a recipe's file, or a `Recipe`.
    images: a tensor or array (N, C, H, W), (N, H, W) or (N, features), or a NumPy array (N, H, W, C); bytes (uint8),
        or floats in [0, 1]; for tables in other units, see `linfdist.sklearn`. Instead of images and labels, a data
        set: one of `linfdist.data.load`; or anything that gives pairs (image, label), or batches of them, such as a
        torch `Dataset` or `DataLoader`, which is read once. Batches of the training are the recipe's own.
    labels: whole numbers (N,), counted from 0; or names of classes.
    network: one of your own, in place of the recipe's: a network of `linfdist.models`, or layers in a
        `linfdist.nn.Stack` or a `torch.nn.Sequential`. A copy of it is trained, from the weights that it has, with the
        recipe's loss, schedule and augmentation; the recipe's keys for its own network (model, width, start and so on)
        have no effect.
    classes: the names of the classes; by default, there are as many classes as labels, in the order of the alphabet if
        these are names.
    settings: other values for keys of the recipe, such as {"epochs": 3, "width": 64, "eps": "8/255"}.
    callback: is called with a `Progress` after each epoch; what it raises ends the training.
    device: where to train: "cpu", "cuda", "cuda:1"; by default on a GPU if a fast backend can use one, else on the CPU.

    The same recipe and images give the same bits as `linfdist train`. If images and classes have the shape and number
    of the recipe's data set, they are normalised with its constants, else with their own mean and standard deviation.
    """
    if not isinstance(recipe, str | Path | Recipe):
        raise TypeError(
            f"recipe must be the name of a recipe, a path or a Recipe, got {described(recipe)}: "
            "ld.train(recipe, images, labels)"
        )
    dataset = _dataset(images, labels, classes)
    chosen = recipe if isinstance(recipe, Recipe) else recipes.load(recipe)
    info = data.info(chosen.data) if chosen.data in data.NAMES else None
    changes = {key: _stated(key, value) for key, value in (settings or {}).items()}
    if info is None or (info.shape, info.num_classes) != (tuple(dataset.images.shape[1:]), len(dataset.classes)):
        info = _measured(dataset)
        if chosen.data in data.NAMES:
            changes = {"data": "./in-memory", **changes}  # it is not the data set that the recipe was made for
    if network is not None and (lost := sorted(changes.keys() & keys_of_networks())):
        raise ValueError(f"settings: {', '.join(lost)} would have no effect, because the network is given")
    workers = Workers(device=machine.choose_device(device))
    trainer = Trainer(chosen.override(changes), dataset, info, workers, network=network)
    for note in trainer.notes:
        warnings.warn(note, stacklevel=2)
    trained = trainer.run(callback).cpu()
    trained.class_names = dataset.classes
    return trained


def _stated(key: str, value: object) -> object:
    """Return a setting as recipes write it: a radius is text, which means the number that was given, exactly."""
    return as_text(parse_eps(cast(Eps, value))) if key == "eps" and not isinstance(value, str) else value


def _dataset(images: Any, labels: Any, classes: Sequence[str] | None) -> Dataset:
    classes = classes or (images.classes if isinstance(images, Dataset) else None)
    images, own = read(images, "images")
    if own is not None and labels is not None:
        raise ValueError("labels: the data set has its own; give either a data set, or images and labels")
    if own is None and labels is None:
        raise ValueError("labels: are missing; give images and labels, or a data set of pairs (image, label)")
    pixels = _pixels(images)
    indices, classes = _labels(own if labels is None else labels, classes)
    if len(pixels) != len(indices):
        raise ValueError(f"labels: there are {len(indices)} for {len(pixels)} images")
    return Dataset(NAME, pixels, indices, _classes(indices, classes))


def _pixels(images: Any) -> Tensor:
    """Return images as uint8 or float32 (N, C, H, W) on the CPU."""
    pixels = as_samples(images)
    if pixels.dim() != 4 or 0 in pixels.shape:
        shapes = "(N, C, H, W), (N, H, W), (N, features), or NumPy's (N, H, W, C), and not be empty"
        raise ValueError(f"images: must be {shapes}, got {tuple(pixels.shape)}")
    check_range(pixels)
    return (pixels if pixels.dtype == torch.uint8 else pixels.float()).contiguous()


def _labels(labels: Any, classes: Sequence[str] | None) -> tuple[Tensor, Sequence[str] | None]:
    """Return labels as whole numbers (N,), and the names of the classes, sorted if the labels are names themselves."""
    if (names := names_in(labels)) is not None:
        classes = sorted(set(names)) if classes is None else classes
    numbers = as_labels(labels, classes, "labels").cpu()
    if numbers.dim() != 1 or numbers.is_floating_point() or numbers.is_complex() or numbers.dtype == torch.bool:
        found = f"{str(numbers.dtype).removeprefix('torch.')} of shape {tuple(numbers.shape)}"
        raise ValueError(f"labels: must be whole numbers or names, of shape (N,), got {found}")
    return numbers.to(torch.int64), classes


def _classes(labels: Tensor, classes: Sequence[str] | None) -> tuple[str, ...]:
    """Return the names of the classes, by default the labels themselves."""
    found = labels.unique()  # sorted
    lowest, highest = int(found[0]), int(found[-1])
    if lowest < 0 or (classes is not None and highest >= len(classes)):
        allowed = "at least 0" if classes is None else f"0 … {len(classes) - 1}, as there are {len(classes)} classes"
        raise ValueError(f"labels: must be {allowed}; got {lowest} … {highest}")
    if classes is not None:
        return tuple(classes)
    if highest >= len(found):
        missing = int((found != torch.arange(len(found))).nonzero()[0])
        raise ValueError(
            f"labels: go up to {highest}, but no image has label {missing}; "
            "count them from 0, or give the names of all classes"
        )
    return tuple(str(label) for label in range(highest + 1))


def _measured(dataset: Dataset) -> Info:
    info = measure(dataset, NAME)
    if info.std == 0:
        raise ValueError("images: every channel is constant; there is nothing to learn from")
    return info
