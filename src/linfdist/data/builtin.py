"""The declaration of a data set: its constants, sources and errors. It imports neither torch nor NumPy."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from ..errors import LinfdistError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SPLITS = ("train", "test")

Pixels: TypeAlias = "NDArray[np.uint8]"
Labels: TypeAlias = "NDArray[np.int64]"


class DataError(LinfdistError, RuntimeError):
    """A data set cannot be fetched or used; the message says why and what to do."""


class Unavailable(DataError):
    """A source cannot be used here and now; the next one is tried."""


class Corrupt(DataError):
    """A file has the wrong content; the message names it."""


@dataclass(frozen=True)
class Info:
    """The constants of a data set.

    `mean` is per channel and `std` one scalar, both on the 0–1 intensity scale: with one scalar the ℓ∞ ball stays a
    ball.
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

    splits: "dict[str, tuple[Pixels, Labels]]"
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
