"""Files that are written whole or not at all. Tensors go into safetensors with a JSON header: no pickle, ever."""

import errno
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

HEADER = "linfdist"
MODEL_FILE = "model.safetensors"  # the network in the folder of a run


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary name to write to, which becomes `path` once everything is on the disk.

    A symbolic link is followed: the file it leads to is replaced, and the link stays. The new file has the permissions
    that the umask gives. If something fails, what was there before stays, nothing half-written is left, and an OSError
    names `path`.
    """
    check_writable(path)
    target = Path(os.path.realpath(path))
    folder = target.with_name(f".{target.name}.{os.getpid()}.tmp")  # writers may have temporary files of their own
    try:
        folder.mkdir(exist_ok=True)
        unfinished, fresh = folder / target.name, folder / ".mode"
        yield unfinished
        fresh.touch()
        unfinished.chmod(fresh.stat().st_mode)
        with open(unfinished, "rb") as file:
            os.fsync(file.fileno())
        os.replace(unfinished, target)
    except (OSError, SafetensorError) as error:
        raise OSError(*_reason(error), os.fspath(path)) from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def check_writable(path: Path) -> None:
    """Raise OSError unless a file can be expected to be written there: better now than after minutes of work."""
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise IsADirectoryError(f"cannot write {path}: it is a folder")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"cannot write {path}: the folder {path.parent} does not exist")
    if not os.access(target.parent, os.W_OK):
        raise PermissionError(f"cannot write {path}: the folder {path.parent} is read-only")


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file, text as UTF-8, whole or not at all."""
    with replacing(path) as unfinished:
        unfinished.write_bytes(content.encode() if isinstance(content, str) else content)


def save_tensors(path: Path, tensors: Mapping[str, Tensor], header: Mapping[str, Any]) -> None:
    """Save tensors and a JSON header in one file, whole or not at all."""
    contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with replacing(path) as unfinished:
        save_file(contiguous, unfinished, metadata={HEADER: json.dumps(dict(header))})


def append(path: Path, content: str) -> None:
    """Add text to the end of a file and flush it to the disk; on a full disk the file stays as it was."""
    with open(path, "ab", buffering=0) as file:
        before = file.seek(0, os.SEEK_END)
        try:
            left = memoryview(content.encode())
            while left:
                left = left[file.write(left) :]
            os.fsync(file.fileno())
        except OSError as error:
            file.truncate(before)
            raise OSError(error.errno, error.strerror, os.fspath(path)) from None


def _reason(error: OSError | SafetensorError) -> tuple[int, str]:
    if isinstance(error, OSError):
        return error.errno or errno.EIO, error.strerror or str(error)
    stated = re.search(r"os error (\d+)", str(error))  # safetensors gives the system's errors as text
    return (int(stated[1]), os.strerror(int(stated[1]))) if stated else (errno.EIO, str(error))


def remove_leftovers(path: Path) -> None:
    """Delete what a killed process may have left beside `path`: it can be as large as the file itself."""
    for leftover in path.parent.glob(f".{path.name}.*.tmp"):
        if leftover.is_dir():
            shutil.rmtree(leftover, ignore_errors=True)
        else:
            leftover.unlink(missing_ok=True)


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what `save_tensors` has written; anything else is refused with the reason."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except SafetensorError as error:
        raise ValueError(f"{path} is not a safetensors file, or is damaged ({error})") from None
    if HEADER not in metadata:
        raise ValueError(f"{path} is a safetensors file, but was not written by linfdist: it has no {HEADER!r} header")
    try:
        header = json.loads(metadata[HEADER])
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} has a damaged header ({error})") from None
    if not isinstance(header, dict):
        raise ValueError(f"{path} has a header that is not a JSON object")
    return tensors, header
