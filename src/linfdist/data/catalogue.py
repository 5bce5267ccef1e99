"""The data sets by name: loading and fetching them, and their constants."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import closest
from . import cifar10, digits, fashion, mnist, store, tinyimagenet
from .builtin import SPLITS, Builtin, Content, DataError, Info
from .sources import DISK_FULL

if TYPE_CHECKING:
    from .base import Dataset

_BUILTIN: dict[str, Builtin] = {
    builtin.info.name: builtin
    for builtin in (mnist.MNIST, fashion.FASHION, cifar10.CIFAR10, tinyimagenet.TINY_IMAGENET, digits.DIGITS)
}
NAMES: tuple[str, ...] = tuple(_BUILTIN)


@dataclass(frozen=True)
class Fetched:
    """Where a data set is stored, where it came from, and whether this call fetched it."""

    folder: Path
    source: str
    fresh: bool


def load(
    name: str | os.PathLike[str],
    split: str = "train",
    data_dir: str | os.PathLike[str] | None = None,
    resize: int | None = None,
) -> Dataset:
    """Load one split of a data set, fetched and verified if it is not stored yet.

    name: one of `NAMES`, or the path of a folder of images `class/image.png`, optionally below `train/` and `test/`.
    split: "train" or "test". TinyImageNet's test split is its labelled val split.
    data_dir: where data sets are stored; default `$LINFDIST_DATA`, else the platform's cache folder.
    resize: for folders, the side of the squares that are cut out of the middle of all images and resized.

    The images are mapped from the stored file, whose checksum is compared at every call.
    """
    if split not in SPLITS:
        raise ValueError(f"split must be one of {', '.join(SPLITS)}, got {split!r}")
    builtin = _BUILTIN.get(os.fspath(name))
    if builtin is None:
        from . import folder  # with torch

        return folder.load(_folder(name), split, resize)
    if resize is not None:
        raise DataError(f"resize = {resize}: all images of {builtin.info.name} have one size; it is for folders")
    root = store.data_root(data_dir)
    if not store.file(root, builtin.info.name, split).exists():
        fetch(builtin.info.name, root)
    return store.read(root, builtin.info, split).dataset


def fetch(name: str, data_dir: str | os.PathLike[str] | None = None) -> Fetched:
    """Fetch a data set from the first source that works, and store it; an intact stored one is kept.

    A damaged stored file is replaced. Any number of processes may call this at once: one works, the others wait.
    """
    builtin = _BUILTIN.get(name)
    if builtin is None:
        raise DataError(f"unknown data set {name!r}: must be one of {', '.join(NAMES)}{closest(name, NAMES)}")
    root = store.data_root(data_dir)
    place = root / builtin.info.name
    source = _stored_source(root, builtin.info)  # without the lock first: the folder may be read-only
    if source is not None and not store.has_workspaces(place):
        return Fetched(place, source, fresh=False)
    try:
        with store.lock(place):
            source = _stored_source(root, builtin.info)
            store.remove_workspaces(place)
            if source is not None:
                return Fetched(place, source, fresh=False)
            with store.workspace(place) as temporary:
                content, source = _obtain(builtin, root, temporary)
                store.write(root, builtin.info, content, source)
            return Fetched(place, source, fresh=True)
    except OSError as error:
        raise DataError(
            f"cannot store {name} in {place}: {error.strerror or error}; "
            "choose another folder with --data-dir or $LINFDIST_DATA"
        ) from error


def info(name: str | os.PathLike[str], resize: int | None = None) -> Info:
    """Return the constants of a data set; those of a folder of images are computed from its training images."""
    builtin = _BUILTIN.get(os.fspath(name))
    if builtin is not None:
        return builtin.info
    from . import folder  # with torch

    return folder.info(_folder(name), resize)


def stored_classes(name: str, data_dir: str | os.PathLike[str] | None = None) -> tuple[str, ...] | None:
    """Name the classes of a data set if it is stored and intact; do not fetch it."""
    if name in _BUILTIN and not store.file(store.data_root(data_dir), name, "test").is_file():
        return None
    try:
        return load(name, "test", data_dir).classes
    except (OSError, DataError):
        return None


def _folder(name: str | os.PathLike[str]) -> Path:
    path = Path(name).expanduser()
    if not path.is_dir():
        text = os.fspath(name)
        raise DataError(f"{text!r} is neither a folder of images nor one of {', '.join(NAMES)}{closest(text, NAMES)}")
    return path


def _stored_source(root: Path, info: Info) -> str | None:
    """Say where the stored files came from, if all are there and intact."""
    try:
        sources = {store.read(root, info, split).source for split in SPLITS}
    except (DataError, FileNotFoundError):
        return None
    return ", ".join(sorted(sources))


def _obtain(builtin: Builtin, root: Path, temporary: Path) -> tuple[Content, str]:
    content = builtin.local(root)
    if content is not None:
        return content, f"files in {root}"
    failures = [f"files in {root}: none"]
    for number, source in enumerate(builtin.sources):
        work = temporary / f"source-{number}"
        work.mkdir()
        try:
            return source.read(work), source.title
        except (DataError, OSError) as error:
            if isinstance(error, OSError) and error.errno in DISK_FULL:
                raise
            failures.append(f"{source.title}: {error}")
    listing = "\n".join(f"  - {failure}" for failure in failures)
    raise DataError(
        f"no source gave {builtin.info.name}:\n{listing}\n"
        f"By hand: {builtin.by_hand.format(folder=root / builtin.info.name)}; then call again."
    )
