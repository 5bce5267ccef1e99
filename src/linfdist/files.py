"""Files that are written whole or not at all. Tensors go into safetensors with a JSON header: no pickle, ever."""

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

HEADER = "linfdist"


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file, text as UTF-8, under a temporary name, then rename it."""
    temporary = _temporary(path)
    try:
        with open(temporary, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def save_tensors(path: Path, tensors: Mapping[str, Tensor], header: Mapping[str, Any]) -> None:
    """Save tensors and a JSON header in one file, atomically and flushed to the disk."""
    contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    folder = _temporary(path)  # safetensors has temporary files of its own, with names that nobody could foresee
    try:
        try:
            folder.mkdir(exist_ok=True)
            save_file(contiguous, folder / path.name, metadata={HEADER: json.dumps(dict(header))})
        except (OSError, SafetensorError) as error:
            raise OSError(f"cannot write {path} ({getattr(error, 'strerror', None) or error})") from None
        with open(folder / path.name, "rb") as file:
            os.fsync(file.fileno())
        os.replace(folder / path.name, path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def remove_leftovers(path: Path) -> None:
    """Delete what a killed process may have left beside `path`: it can be as large as the file itself."""
    for leftover in path.parent.glob(f".{path.name}.*.tmp"):
        if leftover.is_dir():
            shutil.rmtree(leftover, ignore_errors=True)
        else:
            leftover.unlink(missing_ok=True)


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.tmp")


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What `save_tensors` has written; anything else is refused with the reason."""
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
