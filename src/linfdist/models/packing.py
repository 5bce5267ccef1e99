"""Tensors in few bytes, without loss: columns of one value are stored once, and everything is deflated.

docs/format.md describes what is written here.
"""

import math
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..files import excerpt

PACKED = "packed"  # the name of the tensor, and of the header's entry, that hold the others
ALWAYS, TIMES = 2**26, 256  # bytes that any file may unpack to, and how many there may be for each of its own
_DTYPES = {"F64": torch.float64, "F32": torch.float32, "I16": torch.int16}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
_BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}  # to compare values bit by bit, by their size in bytes
Shape = tuple[int, ...]
Bytes = NDArray[np.uint8]
LEVEL = 9  # of zlib: the smallest files, which take no longer to read


def pack(tensors: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Any]] | None:
    """Return tensors as bytes, and the header's entry that describes them; None if `unpack` would refuse that.

    It would if they become so small that nobody could tell the file from one that is made to exhaust the memory.
    """
    described, data = {}, bytearray()
    for name, tensor in sorted(tensors.items()):
        if tensor.dtype not in _NAMES:
            raise TypeError(f"{name} cannot be packed: needs one of {', '.join(_NAMES.values())}, got {tensor.dtype}")
        values = tensor.detach().cpu().contiguous()
        entry: dict[str, Any] = {"dtype": _NAMES[values.dtype], "shape": list(values.shape)}
        sparse = _sparse(values)
        if sparse is None:
            data += _planes(values)
        else:
            common, mask, kept = sparse
            entry["kept"] = len(kept)
            data += _planes(common) + np.packbits(mask, axis=1).tobytes() + _planes(kept)
        described[name] = entry
    packed = torch.frombuffer(bytearray(zlib.compress(data, LEVEL)), dtype=torch.uint8)
    return (packed, described) if _allowed(sum(each.nbytes for each in tensors.values()), len(packed)) else None


def unpack(tensors: Mapping[str, Tensor], described: object, path: Path) -> dict[str, Tensor]:
    """Return the tensors that `pack` has packed; ValueError, naming the file, for what it cannot have written.

    All sizes are known, and allowed, before a byte is inflated.
    """
    packed = tensors.get(PACKED)
    if packed is None or len(tensors) > 1 or packed.dtype != torch.uint8 or packed.dim() != 1:
        raise ValueError(f"{path}: its only tensor must be {PACKED!r}, bytes that hold the others")
    if not isinstance(described, dict):
        raise ValueError(f"{path}: its packed tensors must be described by a JSON object, got {excerpt(described)}")
    shapes = {name: _described(name, entry, path) for name, entry in sorted(described.items())}
    whole = sum(math.prod(shape) * dtype.itemsize for dtype, shape, _ in shapes.values())
    if not _allowed(whole, len(packed)):
        raise ValueError(
            f"{path}: would unpack {len(packed):,} bytes to {whole:,}; files may unpack to {TIMES} times their bytes, "
            f"or to {ALWAYS:,} bytes"
        )
    data = _inflated(packed, sum(_stored(*each) for each in shapes.values()), path)
    found = {}
    for name, (dtype, shape, kept) in shapes.items():
        own, data = np.split(data, [_stored(dtype, shape, kept)])
        found[name] = _values(own, dtype).view(shape) if kept is None else _filled(own, dtype, shape, kept, name, path)
    return found


def _filled(own: Bytes, dtype: torch.dtype, shape: Shape, kept: int, name: str, path: Path) -> Tensor:
    """Return the matrix of these bytes: the common value of each column, and what the mask keeps."""
    rows, columns = shape
    end = columns * dtype.itemsize
    common, bits, values = np.split(own, [end, end + rows * -(-columns // 8)])
    mask = np.unpackbits(bits.reshape(rows, -1), axis=1)
    if mask[:, columns:].any() or np.count_nonzero(mask) != kept:
        raise ValueError(f"{path}: {name} keeps {kept:,} values, which its mask does not fit")
    matrix = _values(common, dtype).repeat(rows, 1)
    return matrix.masked_scatter_(torch.from_numpy(mask[:, :columns].view(bool)), _values(values, dtype))


def _allowed(whole: int, packed: int) -> bool:
    return whole <= max(ALWAYS, TIMES * packed)


def _sparse(values: Tensor) -> tuple[Tensor, NDArray[np.bool_], Tensor] | None:
    """Return the commonest value of each column, where others are, and these; None if that takes more bytes."""
    if values.dim() != 2 or not values.numel():
        return None
    bits = values.view(_BITS[values.itemsize])
    common = bits.mode(0).values
    mask = bits != common
    kept = bits[mask].view(values.dtype)
    if (len(kept) + len(common)) * values.itemsize + mask.numel() // 8 + len(mask) >= values.nbytes:
        return None
    return common.view(values.dtype), mask.numpy(), kept


def _planes(values: Tensor) -> bytes:
    """Return the first bytes of all values, then the second ones, and so on, which deflates better."""
    flat = values.reshape(-1)
    return bytes(flat.view(torch.uint8).view(len(flat), values.itemsize).T.contiguous().numpy()) if len(flat) else b""


def _values(planes: Bytes, dtype: torch.dtype) -> Tensor:
    """Undo `_planes`."""
    return torch.from_numpy(np.array(planes.reshape(dtype.itemsize, -1).T, order="C").reshape(-1)).view(dtype)


def _described(name: str, entry: Any, path: Path) -> tuple[torch.dtype, Shape, int | None]:
    """Return the type and the shape of a tensor, and how many values its mask keeps, if it has one."""
    try:
        dtype, shape = _DTYPES[entry["dtype"]], tuple(entry["shape"])
        counts = [entry["kept"]] if "kept" in entry else []
        if len(entry) != 2 + len(counts) or not all(
            type(each) is int and 0 <= each < 2**31 for each in (*shape, *counts)
        ):
            raise ValueError
        if counts and not (len(shape) == 2 and counts[0] <= math.prod(shape) and min(shape) >= 1):
            raise ValueError
    except (KeyError, TypeError, ValueError):
        raise ValueError(f"{path}: packed tensor {excerpt(name)} is described by {excerpt(entry)}") from None
    return dtype, shape, counts[0] if counts else None


def _stored(dtype: torch.dtype, shape: Shape, kept: int | None) -> int:
    """Count the bytes of a tensor before they are deflated."""
    if kept is None:
        return math.prod(shape) * dtype.itemsize
    rows, columns = shape
    return (columns + kept) * dtype.itemsize + rows * -(-columns // 8)


def _inflated(packed: Tensor, size: int, path: Path) -> Bytes:
    """Inflate to exactly so many bytes; not one more is written, whatever the stream says."""
    stream = zlib.decompressobj()
    try:
        data = stream.decompress(packed.numpy().data, size + 1)
    except zlib.error as error:
        raise ValueError(f"{path}: its packed tensors are damaged ({error})") from None
    if len(data) != size or not stream.eof or stream.unused_data:
        raise ValueError(f"{path}: its packed tensors are damaged (they must fill {size:,} bytes and end there)")
    return np.frombuffer(data, np.uint8) if data else np.empty(0, np.uint8)
