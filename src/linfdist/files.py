"""All access to files: reading takes only regular files, strictly and within limits; writing is all or nothing.

Tensors go into safetensors with a JSON header: no pickle, ever.
"""

import errno
import glob
import hashlib
import json
import math
import mmap
import os
import shutil
import socket
import stat
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn

if TYPE_CHECKING:
    import torch
    from torch import Tensor

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HEADER = "linfdist"
MOST_BYTES = 8 * 2**20  # of JSON or TOML that is read in one piece
MOST_LINE_BYTES = 64 * 2**10  # of one line of JSON
MOST_DIGITS = 20  # of an integer
MOST_LEVELS = 32  # of lists and objects inside one another
_TOO_DEEP = f"has more than {MOST_LEVELS} levels of lists and objects"
_AT_ONCE = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)  # what other systems do without
_SAFELY = _AT_ONCE | getattr(os, "O_NOFOLLOW", 0)
_DTYPES = {  # names in safetensors files, in the order in which their tensors are stored: torch's names, and bytes
    "I64": ("int64", 8), "F64": ("float64", 8), "F32": ("float32", 4), "I32": ("int32", 4), "BF16": ("bfloat16", 2),
    "F16": ("float16", 2), "I16": ("int16", 2), "I8": ("int8", 1), "U8": ("uint8", 1), "BOOL": ("bool", 1),
}  # fmt: skip


def _dtype(name: str) -> "torch.dtype":
    """Return torch's type by its name in safetensors files."""
    import torch

    dtype: torch.dtype = getattr(torch, _DTYPES[name][0])
    return dtype


@contextmanager
def opened(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a regular file for reading, once and without waiting; raise ValueError for a pipe, a device or a folder."""
    handle = os.open(path, os.O_RDONLY | _AT_ONCE)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise ValueError(f"{os.fspath(path)} is not a regular file")
    with open(handle, "rb") as file:
        yield file


def read_bytes(path: str | os.PathLike[str], most_bytes: int | None = None) -> bytes:
    """Read a whole regular file, once; ValueError if it has more than `most_bytes`."""
    with opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        if most_bytes is not None and size > most_bytes:
            raise ValueError(f"{os.fspath(path)} has {size:,} bytes, more than {most_bytes:,} bytes")
        return file.read(size)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary name to write to, which becomes `path` once everything is on the disk.

    The new file has the permissions that the umask gives. If something fails, what was there before stays, nothing
    half-written is left, and an OSError names `path`. Links are not followed: see `check_writable`.
    """
    check_writable(path)
    folder = path.with_name(f".{path.name}.{os.getpid()}.tmp")  # writers may have temporary files of their own
    remove_leftovers(path)
    try:
        folder.mkdir(exist_ok=True)
        unfinished, fresh = folder / path.name, folder / ".mode"
        yield unfinished
        fresh.touch()
        unfinished.chmod(fresh.stat().st_mode)
        with open(unfinished, "rb") as file:
            os.fsync(file.fileno())
        os.replace(unfinished, path)
    except OSError as error:
        raise OSError(error.errno or errno.EIO, error.strerror or str(error), os.fspath(path)) from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def output(path: Path, inputs: Iterable[Path] = ()) -> Path:
    """Return the file to write to for a path that the user gave: links are followed here, and nowhere else.

    Raises OSError if it cannot be written, and ValueError if writing would destroy one of the files that are read.
    """
    target = Path(os.path.realpath(path)) if path.is_symlink() else path
    check_writable(target)
    for each in inputs:
        if target.exists() and each.exists() and target.samefile(each):
            raise ValueError(f"{path} is one of the files that are read: choose another file to write to")
    return target


def check_writable(path: Path) -> None:
    """Raise OSError unless a file can probably be written there: better now than after minutes of work.

    What is there must be a regular file. A link is refused: it could lead out of the folder that is written to.
    """
    _check_kind(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"cannot write {path}: the folder {path.parent} does not exist")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise PermissionError(f"cannot write {path}: the folder {path.parent} is read-only")


def _check_kind(path: Path) -> None:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(f"cannot write {path}: it is a folder")
    if not stat.S_ISREG(mode):
        what = "a symbolic link" if stat.S_ISLNK(mode) else "a pipe or a device"
        raise FileExistsError(f"cannot write {path}: it is {what}, not a regular file; remove it, or choose another")


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file, text as UTF-8, whole or not at all."""
    with replacing(path) as unfinished:
        unfinished.write_bytes(content.encode() if isinstance(content, str) else content)


def save_tensors(path: Path, tensors: Mapping[str, "Tensor"], header: Mapping[str, Any]) -> None:
    """Save tensors and a JSON header in one safetensors file, whole or not at all."""
    with replacing(path) as unfinished:
        write_tensors(unfinished, tensors, {HEADER: json.dumps(dict(header))})


def write_tensors(path: Path, tensors: Mapping[str, "Tensor"], metadata: Mapping[str, str]) -> None:
    """Write a safetensors file. The same content gives the same bytes; the library shuffles the metadata."""
    import torch  # which not every command needs

    names = {_dtype(name): name for name in _DTYPES}
    kinds = list(names)
    own = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    ordered = sorted(own, key=lambda name: (kinds.index(own[name].dtype), name))
    entries: dict[str, Any] = {"__metadata__": dict(metadata)}
    end = 0
    for name in ordered:
        begin, end = end, end + own[name].nbytes
        entries[name] = {
            "dtype": names[own[name].dtype], "shape": list(own[name].shape), "data_offsets": [begin, end]
        }  # fmt: skip
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in ordered:
            file.write(own[name].reshape(-1).view(torch.uint8).numpy().data)


def append(path: Path, content: str) -> None:
    """Add text to the end of a file and flush it to the disk; on a full disk the file stays as it was."""
    _check_kind(path)
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | _SAFELY, 0o666)
    with open(handle, "ab", buffering=0) as file:
        before = file.seek(0, os.SEEK_END)
        try:
            left = memoryview(content.encode())
            while left:
                left = left[file.write(left) :]
            os.fsync(file.fileno())
        except OSError as error:
            file.truncate(before)
            raise OSError(error.errno, error.strerror, os.fspath(path)) from None


@contextmanager
def alone(path: Path, doing: str, advice: str) -> Iterator[None]:
    """Hold the lock `path` while this process lives; raise ValueError that says who else holds it, and since when."""
    from filelock import FileLock, Timeout

    _check_kind(path)  # a link would be followed, and what it leads to emptied
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        try:
            holder = " ".join(read_bytes(path, MOST_LINE_BYTES).decode("utf-8", "replace").split())
        except (OSError, ValueError):  # some versions and systems do not let others read it
            holder = ""
        raise ValueError(f"another process{f' ({holder[:200]})' if holder else ''} {doing}: {advice}") from None
    try:
        since = datetime.now().astimezone().isoformat(" ", "seconds")
        path.write_text(f"pid {os.getpid()} on {socket.gethostname()}, since {since}\n", encoding="utf-8")
        yield
    finally:
        lock.release()


def remove_leftovers(path: Path) -> None:
    """Delete what killed processes have left beside `path`, which can be as large as the file itself.

    Files of running processes are in use, and stay.
    """
    for leftover in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
        if _is_alive(leftover.name.split(".")[-2]):
            continue
        if leftover.is_dir():
            shutil.rmtree(leftover, ignore_errors=True)
        else:
            leftover.unlink(missing_ok=True)


def _is_alive(process: str) -> bool:
    if not process.isdecimal() or len(process) > MOST_DIGITS:
        return False
    try:
        os.kill(int(process), 0)
    except (OSError, OverflowError) as error:
        return isinstance(error, PermissionError)  # it is another user's
    return True


def load_tensors(path: Path) -> tuple[dict[str, "Tensor"], dict[str, Any]]:
    """Map a file of `save_tensors` into memory; anything else is refused with the reason."""
    content = mapped(path)
    return tensors_in(content, path), header_in(content, path)


def mapped(path: Path) -> bytes | mmap.mmap:
    """Map a regular file into memory. Changes stay in memory."""
    with opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        return mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY) if size else b""


def tensors_in(content: bytes | mmap.mmap, path: Path) -> dict[str, "Tensor"]:
    """Return the tensors of a safetensors file that was read from `path`; raise ValueError for any other file.

    Those of a mapped file share its memory. They must fill the file, without gaps and without overlaps.
    """
    import torch

    _, entries, start = _described(content, path)
    places = sorted((*_place(entry, name, path), name) for name, entry in entries.items())
    ends = [0, *(end for _, end, *_ in places)]
    if [begin for begin, *_ in places] != ends[:-1] or start + ends[-1] != len(content):
        raise _damaged(path, f"its tensors do not fill its {len(content):,} bytes, without gaps and overlaps")
    tensors = {}
    for begin, end, kind, shape, name in places:
        dtype, view = _dtype(kind), memoryview(content)[start + begin : start + end]
        data = bytearray(view) if view.readonly or (start + begin) % dtype.itemsize else view
        flat = torch.frombuffer(data, dtype=dtype) if len(data) else torch.empty(0, dtype=dtype)
        tensors[name] = flat.view(shape)
    return tensors


def metadata_in(content: bytes | mmap.mmap, path: Path) -> dict[str, str]:
    """Return the metadata of a safetensors file that was read from `path`; raise ValueError for any other file."""
    return _described(content, path)[0]


def header_in(content: bytes | mmap.mmap, path: Path) -> dict[str, Any]:
    """Return the JSON header that `save_tensors` has written to `path`; raise ValueError for any other file."""
    text, where = metadata_in(content, path).get(HEADER), f"{path}, header"
    if text is None:
        raise ValueError(f"{path} is a safetensors file, but was not written by linfdist: it has no {HEADER!r} header")
    if len(text) > MOST_BYTES:
        raise ValueError(f"{path} has a header of more than {MOST_BYTES:,} bytes")
    return _object_in(parse_json(text, where), where)


def _described(content: bytes | mmap.mmap, path: Path) -> tuple[dict[str, str], dict[str, Any], int]:
    """Return the metadata of a safetensors file, the entries of its tensors, and where their bytes start."""
    start = 8 + int.from_bytes(content[:8], "little")
    if len(content) < start or start > 3 * MOST_BYTES:  # a header is text in another text, with a backslash per quote
        raise _damaged(path, "it does not begin with the length of its JSON header")
    try:
        entries = _object_in(parse_json(content[8:start], "its JSON header"), "its JSON header")
    except ValueError as error:
        raise _damaged(path, str(error)) from None
    metadata = entries.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(text, str) for text in metadata.values()):
        raise _damaged(path, f"its metadata must be texts by name, got {excerpt(metadata)}")
    return metadata, entries, start


def _place(entry: Any, name: str, path: Path) -> tuple[int, int, str, list[int]]:
    """Return where a tensor begins and ends, its type, and its shape, if they fit together."""
    try:
        if entry.keys() != {"dtype", "shape", "data_offsets"}:
            raise ValueError
        kind, shape, (begin, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
        if not all(type(number) is int and 0 <= number < 2**48 for number in (*shape, begin, end)):
            raise ValueError
        if end - begin != math.prod(shape) * _DTYPES[kind][1]:
            raise ValueError
    except (AttributeError, KeyError, TypeError, ValueError):
        raise _damaged(path, f"tensor {excerpt(name)} is described by {excerpt(entry)}") from None
    return begin, end, kind, list(shape)


def _damaged(path: Path, why: str) -> ValueError:
    return ValueError(f"{path} is not a safetensors file, or is damaged ({why})")


def parse_json(text: str | bytes, where: str) -> Any:
    """Parse a JSON text; raise ValueError that starts with `where` and says what is wrong.

    Stricter than JSON itself: no NaN or infinity, no number beyond all floats, no integer of more than 20 digits, no
    key twice, no more than 32 levels, and no half of a surrogate pair in a string.
    """
    try:
        value = json.loads(
            text.decode() if isinstance(text, bytes) else text,
            parse_constant=_no_number, parse_float=_float, parse_int=_int, object_pairs_hook=_object,
        )  # fmt: skip
        _check_value(value)
    except json.JSONDecodeError as error:
        raise ValueError(f"{where}: is not valid JSON ({error})") from None
    except UnicodeDecodeError:
        raise ValueError(f"{where}: is not valid JSON (it is not UTF-8)") from None
    except RecursionError:
        raise ValueError(f"{where}: {_TOO_DEEP}") from None
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    return value


def parse_toml(text: str | bytes, where: str, parse_float: Callable[[str], Any] = float) -> dict[str, Any]:
    """Parse a TOML text; raise ValueError that starts with `where` and says what is wrong. 32 levels are allowed."""
    try:
        value = tomllib.loads(text.decode() if isinstance(text, bytes) else text, parse_float=parse_float)
        _check_value(value)
    except RecursionError:
        raise ValueError(f"{where}: {_TOO_DEEP}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{where}: is not valid TOML (it is not UTF-8)") from None
    except ValueError as error:
        raise ValueError(f"{where}: is not valid TOML ({error})") from None
    return value


def read_json_object(path: Path) -> dict[str, Any]:
    """Read a JSON file that holds an object; raise ValueError that names the file. See `parse_json`."""
    return _object_in(parse_json(read_bytes(path, MOST_BYTES), str(path)), str(path))


def _object_in(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{where}: must be a JSON object, got {excerpt(value)}")
    return value


def read_lines(path: Path, most_bytes: int = MOST_LINE_BYTES) -> Iterator[tuple[str, bytes]]:
    """Yield (where, line) for each line of a file; raise ValueError that names a line that is too long.

    One line is in memory at a time, however large the file is. Only the last line may lack its end.
    """
    with opened(path) as file:
        for number, line in enumerate(iter(lambda: file.readline(most_bytes + 1), b""), start=1):
            where = f"{path}, line {number}"
            if len(line) > most_bytes:
                raise ValueError(f"{where}: has more than {most_bytes:,} bytes")
            yield where, line


def file_sha256(path: Path) -> str:
    """Return the sha256 of a file's bytes."""
    digest = hashlib.sha256()
    with opened(path) as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def excerpt(value: object) -> str:
    """Shorten a value for a message, to one line."""
    text = repr(value)
    return text if len(text) <= 60 else text[:60] + "…"


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"is not valid JSON ({word} is no JSON number)")


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"has {text[:60]}, which is beyond all floats")
    return value


def _int(text: str) -> int:
    if len(text) > MOST_DIGITS:
        raise ValueError(f"has {text[:MOST_DIGITS]}…, an integer of more than {MOST_DIGITS} digits")
    return int(text)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        twice, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise ValueError(f"has the key {excerpt(twice)} twice")
    return value


def _check_value(value: Any) -> None:
    """Raise ValueError for too deep nesting, and for text that no file can hold."""
    level = [value]
    for _ in range(MOST_LEVELS + 1):
        for text in (each for each in level if isinstance(each, str) and not each.isascii()):
            if any("\ud800" <= letter <= "\udfff" for letter in text):
                raise ValueError(f"has half of a surrogate pair in {excerpt(text)}")
        inside = [[*each.keys(), *each.values()] if isinstance(each, dict) else each for each in level]
        level = [each for some in inside if isinstance(some, list) for each in some]
        if not level:
            return
    raise ValueError(_TOO_DEEP)
