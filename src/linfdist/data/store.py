"""The stored form of a split: one safetensors file that is mapped into memory and carries its own checksum."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from platformdirs import user_cache_path

from ..files import mapped, metadata_in, parse_json, remove_leftovers, replacing, tensors_in, write_tensors
from .builtin import Content, Corrupt, Info

if TYPE_CHECKING:
    from torch import Tensor

    from .base import Dataset

FORMAT = "linfdist-data-1"
_WORK = "fetching-"  # temporary folders; one that is found under the lock was left by a killed process


@dataclass(frozen=True)
class Stored:
    """A split as stored, with the source it was made from."""

    dataset: Dataset
    source: str


def data_root(data_dir: str | os.PathLike[str] | None = None) -> Path:
    """Find the folder of all data sets: the argument, else `$LINFDIST_DATA`, else the platform's cache folder."""
    chosen = data_dir if data_dir is not None else os.environ.get("LINFDIST_DATA")
    if chosen:
        return Path(chosen).expanduser().absolute()
    return user_cache_path("linfdist", appauthor=False) / "data"


def file(root: Path, name: str, split: str) -> Path:
    """Name the stored file of a split."""
    return root / name / f"{split}.safetensors"


@contextmanager
def lock(place: Path) -> Iterator[None]:
    """Let one process in at a time; a lock dies with the process that holds it."""
    from filelock import FileLock

    place.mkdir(parents=True, exist_ok=True)
    with FileLock(place / ".lock"):
        yield


def has_workspaces(place: Path) -> bool:
    """Return whether the data set is being fetched, or a fetch was killed, in a writable folder."""
    traces = (f"{_WORK}*", ".*.safetensors.*.tmp")
    return os.access(place, os.W_OK) and any(trace for pattern in traces for trace in place.glob(pattern))


def remove_workspaces(place: Path) -> None:
    """Delete the temporary folders of killed processes. The caller must hold the lock."""
    for left_over in place.glob(f"{_WORK}*"):
        shutil.rmtree(left_over, ignore_errors=True)
    for split in ("train", "test"):
        remove_leftovers(place / f"{split}.safetensors")


@contextmanager
def workspace(place: Path) -> Iterator[Path]:
    """Make a temporary folder beside the data, for sources to work in. The caller must hold the lock."""
    remove_workspaces(place)
    path = Path(tempfile.mkdtemp(prefix=_WORK, dir=place))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def write(root: Path, info: Info, content: Content, source: str) -> None:
    """Write both splits, each whole or not at all; neither if one of them fails."""
    import torch

    classes = json.dumps(content.classes)
    with ExitStack() as both:
        for split, (pixels, numbers) in content.splits.items():
            images, labels = torch.from_numpy(pixels).contiguous(), torch.from_numpy(numbers)
            write_tensors(
                both.enter_context(replacing(file(root, info.name, split))),
                {"images": images, "labels": labels},
                {
                    "format": FORMAT,
                    "name": info.name,
                    "split": split,
                    "classes": classes,
                    "source": source,
                    "sha256": _checksum(images, labels, classes),
                },
            )


def read(root: Path, info: Info, split: str) -> Stored:
    """Map a stored split and verify it; raise `FileNotFoundError` if it is missing, `Corrupt` if it is damaged."""
    from .base import Dataset  # with torch

    path = file(root, info.name, split)
    try:
        stored = mapped(path)
        metadata, tensors = metadata_in(stored, path), tensors_in(stored, path)
        images, labels = tensors["images"], tensors["labels"]
    except (FileNotFoundError, PermissionError):
        raise
    except (KeyError, OSError, ValueError) as error:
        raise _damaged(path, info.name, str(error)) from error
    expected = {"format": FORMAT, "name": info.name, "split": split}
    found = {key: metadata.get(key) for key in expected}
    if found != expected:
        raise _damaged(path, info.name, f"its header says {found}, not {expected}")
    classes = metadata.get("classes", "")
    if _checksum(images, labels, classes) != metadata.get("sha256"):
        raise _damaged(path, info.name, "its content does not have the checksum in its header")
    names = tuple(parse_json(classes, str(path)))
    return Stored(Dataset(info.name, images, labels, names), metadata.get("source", "unknown"))


def _checksum(images: Tensor, labels: Tensor, classes: str) -> str:
    digest = hashlib.sha256(f"{tuple(images.shape)} {classes}".encode())
    digest.update(images.numpy().data)
    digest.update(labels.numpy().data)
    return digest.hexdigest()


def _damaged(path: Path, name: str, why: str) -> Corrupt:
    return Corrupt(
        f"{path} is damaged and is not used: {why}. To replace it, delete it, or run "
        f"`linfdist data fetch {name} --data-dir {path.parent.parent}`"
    )
