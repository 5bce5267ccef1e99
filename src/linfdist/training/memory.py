"""Training on images in memory: `linfdist.train`."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .. import data, machine, recipes
from ..data import Dataset, Info
from ..data.folder import measure
from ..data.samples import as_samples, plain_array
from ..models import PixelNet
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
        set: one of `linfdist.data.load`, or any sequence of pairs (image, label), such as a
        `torch.utils.data.Dataset`, which is read once.
    labels: whole numbers (N,), counted from 0.
    network: one of your own, in place of the recipe's: a network of `linfdist.models`, or layers in a
        `linfdist.nn.Stack` or a `torch.nn.Sequential`. A copy of it is trained, from the weights that it has, with the
        recipe's loss, schedule and augmentation; what the recipe says of its network (model, width, start and so on)
        means nothing.
    classes: the names of the classes; by default, there are as many classes as labels.
    settings: other values for keys of the recipe, such as {"epochs": 3, "width": 64}.
    callback: is called with a `Progress` after each epoch; what it raises ends the training.
    device: where to train: "cpu", "cuda", "cuda:1"; by default on a GPU if a fast backend can use one, else on the CPU.

    The same recipe and images give the same bits as `linfdist train`. If images and classes have the shape and number
    of the recipe's data set, they are normalised with its constants, else with their own mean and standard deviation.
    """
    dataset = _dataset(images, labels, classes)
    chosen = recipe if isinstance(recipe, Recipe) else recipes.load(recipe)
    info = data.info(chosen.data) if chosen.data in data.NAMES else None
    changes = dict(settings or {})
    if info is None or (info.shape, info.num_classes) != (tuple(dataset.images.shape[1:]), len(dataset.classes)):
        info = _measured(dataset)
        if chosen.data in data.NAMES:
            changes = {"data": "./in-memory", **changes}  # it is not the data set that the recipe was made for
    if network is not None and (lost := sorted(changes.keys() & keys_of_networks())):
        raise ValueError(f"settings: {', '.join(lost)} would have no effect, because the network is given")
    workers = Workers(device=machine.choose_device(device))
    trained = Trainer(chosen.override(changes), dataset, info, workers, network=network).run(callback).cpu()
    trained.class_names = dataset.classes
    return trained


def _dataset(images: Any, labels: Any, classes: Sequence[str] | None) -> Dataset:
    if isinstance(images, Dataset):
        if labels is not None:
            raise ValueError("labels: the data set has its own; give either a data set, or images and labels")
        images, labels, classes = images.images, images.labels, classes or images.classes
    elif labels is None:
        if isinstance(images, Tensor | np.ndarray):
            raise ValueError("labels: are missing; give images and labels, or a data set of pairs (image, label)")
        images, labels = _unpaired(images)
    pixels, indices = _pixels(images), _labels(labels)
    if len(pixels) != len(indices):
        raise ValueError(f"labels: there are {len(indices)} for {len(pixels)} images")
    return Dataset(NAME, pixels, indices, _classes(indices, classes))


def _unpaired(pairs: Any) -> tuple[Any, Any]:
    """Split a data set into images and labels."""
    entries = pairs if isinstance(pairs, Iterable) else (pairs[index] for index in range(len(pairs)))
    images: list[Any] = []
    labels: list[int] = []
    for index, entry in enumerate(entries):
        if not isinstance(entry, tuple | list) or len(entry) != 2:
            raise ValueError(f"images: entry {index} of the data set is not a pair (image, label)")
        if isinstance(entry[0], np.ma.MaskedArray):
            raise TypeError(f"images: entry {index} is a masked array; fill in what is masked first (numpy.ma.filled)")
        images.append(entry[0] if isinstance(entry[0], Tensor) else np.asarray(entry[0]))
        labels.append(int(entry[1]))
        if images[-1].shape != images[0].shape:
            sizes = f"{tuple(images[-1].shape)}, that of image 0 is {tuple(images[0].shape)}"
            raise ValueError(f"images: all must have one shape, but that of image {index} is {sizes}")
    if not images:
        raise ValueError("images: there are none")
    return (torch.stack if isinstance(images[0], Tensor) else np.stack)(images), labels


def _pixels(images: Any) -> Tensor:
    """Return images as uint8 or float32 (N, C, H, W) on the CPU."""
    pixels = as_samples(images)
    if pixels.dim() != 4 or 0 in pixels.shape:
        shapes = "(N, C, H, W), (N, H, W), (N, features), or NumPy's (N, H, W, C), and not be empty"
        raise ValueError(f"images: must be {shapes}, got {tuple(pixels.shape)}")
    if pixels.dtype == torch.uint8:
        return pixels.contiguous()
    if not (finite := pixels.isfinite().flatten(1).all(1)).all():
        raise ValueError(f"images: the pixels of image {int((~finite).nonzero()[0])} are not all finite")
    lowest, highest = pixels.aminmax()
    if lowest < 0 or highest > 1:
        hint = "; linfdist.sklearn takes tables in any units" if pixels.shape[2:] == (1, 1) else ""
        raise ValueError(f"images: floats must be in [0, 1], got {float(lowest):g} … {float(highest):g}{hint}")
    return pixels.float().contiguous()


def _labels(labels: Any) -> Tensor:
    array = labels.detach().cpu().numpy() if isinstance(labels, Tensor) else plain_array(labels, "labels")
    if array.ndim != 1 or array.dtype.kind not in "ui":
        raise ValueError(f"labels: must be whole numbers of shape (N,), got {array.dtype} of shape {array.shape}")
    return torch.tensor(array.astype(np.int64))


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
