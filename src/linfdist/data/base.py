"""What a data set is, and what can go wrong with one."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import LinfdistError

SPLITS = ("train", "test")

Pixels = NDArray[np.uint8]
Labels = NDArray[np.int64]


class DataError(LinfdistError, RuntimeError):
    """A data set cannot be had or used; the message says why and what to do."""


class Unavailable(DataError):
    """A source cannot be used here and now; the next one is tried."""


class Corrupt(DataError):
    """A file is not what it should be; the message names it."""


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """One split of a data set.

    images: uint8 (N, C, H, W); labels: int64 (N,), indices into `classes`.
    """

    name: str
    images: Tensor
    labels: Tensor
    classes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        shape = "×".join(str(side) for side in self.images.shape[1:])
        return f"<Dataset {self.name}: {len(self):,} images of {shape}, {len(self.classes)} classes>"


@dataclass(frozen=True)
class Info:
    """The constants of a data set.

    `mean` is per channel and `std` one scalar, both on the 0–1 intensity scale: with one scalar the ℓ∞ ball stays one.
    """

    name: str
    title: str
    shape: tuple[int, int, int]  # (C, H, W)
    num_classes: int
    train: int  # number of images
    test: int
    mean: tuple[float, ...]
    std: float
    licence: str = ""


@dataclass(frozen=True)
class Content:
    """Both splits as a source gives them, verified: images (N, C, H, W), labels (N,)."""

    splits: dict[str, tuple[Pixels, Labels]]
    classes: tuple[str, ...]


@dataclass(frozen=True)
class Source:
    """One place that a data set can come from. `read` gets an empty folder to work in."""

    title: str
    read: Callable[[Path], Content]


@dataclass(frozen=True)
class Builtin:
    """A data set known by name.

    `local` looks through the user's data folder: None if the raw files are not there, `Corrupt` if they are wrong.
    """

    info: Info
    local: Callable[[Path], Content | None]
    sources: tuple[Source, ...]
    by_hand: str  # which files to put into the data folder


def spread_out(count: int, total: int) -> Tensor:
    """Return the numbers of `count` of `total` samples, or of all, in order: one of each of `count` equal stretches.

    So a data set that is sorted by class gives all of its classes. Which sample of its stretch is taken moves with the
    golden ratio, for sets may alternate too: every other training image of MNIST comes from another collection of
    digits, and is far easier.
    """
    count = min(count, total)
    stretch = torch.arange(count)
    first, end = stretch * total // max(count, 1), (stretch + 1) * total // max(count, 1)
    share = stretch * 2654435769 % 2**32  # of 2**32: the fraction of a multiple of the golden ratio
    return first + (share * (end - first) >> 32)
