"""What a data set is, what can go wrong with one, and samples in memory as people have them."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import LinfdistError

SPLITS = ("train", "test")
MOST_CHANNELS = 4  # of images whose channels come last

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


def as_pixels(images: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return bytes as pixels of [0, 1], k/255 rounded once; floats are taken for pixels, and only get their type.

    The same bits on every device: divided by a Python number, torch on CUDA would multiply by a rounded 1/255 instead.
    """
    if images.dtype != torch.uint8:
        return images.to(dtype)
    return images.to(dtype).div_(torch.full((), 255.0, dtype=dtype, device=images.device))


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


def as_samples(values: Any, name: str = "images") -> Tensor:
    """Return samples as a tensor (N, C, H, W) on the CPU, of the type that they have.

    Rows of features (N, F) become (N, F, 1, 1). Gray images (N, H, W) get a channel. In NumPy arrays the channels of
    images may come last, as (N, H, W, C).
    """
    if isinstance(values, Tensor):
        samples = values.detach().cpu()
    else:
        array = np.asarray(values)
        if array.ndim == 4 and array.shape[3] <= MOST_CHANNELS < array.shape[1]:
            array = array.transpose(0, 3, 1, 2)
        if array.dtype.kind not in "uif" or array.dtype.itemsize > 8:
            raise TypeError(f"{name}: must be bytes (uint8) or floats in [0, 1], got {array.dtype}")
        samples = torch.tensor(array)  # a copy: an array may be read-only, or run backwards
    if samples.dim() == 2:
        return samples[:, :, None, None]
    return samples[:, None] if samples.dim() == 3 else samples
