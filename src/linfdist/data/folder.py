"""A folder of the user's own images: `class/image.png`, optionally below `train/` and `test/`."""

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from .base import Dataset
from .builtin import SPLITS, DataError, Info
from .images import files_below, open_image, warnings_refused

_TEST_SHARE = 5  # without train/ and test/, one image in five is for testing


def load(root: Path, split: str, resize: int | None = None) -> Dataset:
    """Load one split of a folder of images.

    Classes are the sorted names of the folders. Without `train/` and `test/` a hash of its path decides whether an
    image is for testing: about every fifth is, the same ones on every machine, whatever other images are added or
    removed. One gray channel if all images of both splits are gray, else RGB. resize: see `ImageFile.pixels`.
    """
    paths, classes = _listing(root)
    chosen = paths[split]
    if not chosen:
        raise DataError(f"{root} has no {split} images: it needs more images, or folders train/ and test/")
    with warnings_refused(), ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        colour = any(open_image(path).channels == 3 for part in paths.values() for _, path in part)
        first = open_image(chosen[0][1]).pixels(3 if colour else 1, resize=resize)
        height, width = first.shape[1:]
        size = (height, width) if resize is None else None
        need = f"but all images must have one size: {chosen[0][1]} has {width} × {height}; `resize` makes them alike"
        rest = pool.map(lambda entry: open_image(entry[1]).pixels(3 if colour else 1, size, need, resize), chosen[1:])
        images = np.stack([first, *rest])
    labels = torch.tensor([label for label, _ in chosen])
    return Dataset(str(root), torch.from_numpy(images), labels, classes)


def info(root: Path, resize: int | None = None) -> Info:
    """Compute the constants of a folder: its sizes, and mean and standard deviation of its training images."""
    return measure(load(root, "train", resize), root.name, test=len(_listing(root)[0]["test"]))


def _listing(root: Path) -> tuple[dict[str, list[tuple[int, Path]]], tuple[str, ...]]:
    """List the labelled files of each split in order, and the classes."""
    given = [split for split in SPLITS if (root / split).is_dir()]
    if len(given) == 1:
        missing = next(split for split in SPLITS if split not in given)
        raise DataError(f"{root} has a folder {given[0]}/ but no {missing}/: give both or neither")
    if not given:
        found = _by_class(root)
        paths: dict[str, list[tuple[int, Path]]] = {split: [] for split in SPLITS}
        for label, files in enumerate(found.values()):
            for path in files:
                paths[_split_of(path.relative_to(root).as_posix())].append((label, path))
        return paths, tuple(found)
    parts = {split: _by_class(root / split) for split in SPLITS}
    classes = tuple(parts["train"])
    unknown = sorted(parts["test"].keys() - parts["train"].keys())
    if unknown:
        raise DataError(f"{root / 'test'} has classes that train/ lacks: {', '.join(unknown)}")
    labelled = {
        split: [(classes.index(name), path) for name, files in part.items() for path in files]
        for split, part in parts.items()
    }
    return labelled, classes


def _by_class(root: Path) -> dict[str, list[Path]]:
    """List the images of each class folder, sorted; names that start with a dot are left out."""
    folders = sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))
    found = {folder.name: files_below(folder) for folder in folders}
    if not found:
        raise DataError(f"{root} has no folders: images are expected as {root / 'class' / 'image.png'}")
    empty = [name for name, files in found.items() if not files]
    if empty:
        raise DataError(f"no images in {', '.join(str(root / name) for name in empty)}")
    return found


def _split_of(name: str) -> str:
    number = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")
    return "test" if number % _TEST_SHARE == 0 else "train"


def measure(train: Dataset, title: str, test: int = 0) -> Info:
    """Return the constants of a training set; `test` is the number of test images.

    The mean is per channel; the standard deviation is one number, of all pixels about their channel's mean.
    """
    mean, variance = _moments(train.images)
    channels, height, width = train.images.shape[1:]
    return Info(
        name=train.name,
        title=title,
        shape=(channels, height, width),
        num_classes=len(train.classes),
        train=len(train),
        test=test,
        mean=tuple(mean.tolist()),
        std=variance.mean().sqrt().item(),
    )


def _moments(images: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean and variance of each channel, on the 0–1 intensity scale."""
    if images.dtype != torch.uint8:
        channels = images.transpose(0, 1).flatten(1)
        mean = torch.stack([channel.double().mean() for channel in channels])
        return mean, torch.stack([channel.double().var(correction=0) for channel in channels])
    counts = torch.stack([torch.bincount(channel.flatten(), minlength=256) for channel in images.unbind(1)])
    values = torch.arange(256, dtype=torch.float64) / 255
    mean = (counts * values).sum(1) / counts.sum(1)
    return mean, (counts * (values - mean[:, None]) ** 2).sum(1) / counts.sum(1)
