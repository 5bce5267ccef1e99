"""Files that are written whole or not at all, and JSON that is read strictly and within limits.

Tensors go into safetensors with a JSON header: no pickle, ever.
"""

import errno
import glob
import hashlib
import json
import math
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from safetensors import SafetensorError, safe_open

if TYPE_CHECKING:
    from torch import Tensor

HEADER = "linfdist"
MOST_BYTES = 8 * 2**20  # of JSON that is read in one piece
MOST_LINE_BYTES = 64 * 2**10  # of one line of JSON
MOST_DIGITS = 20  # of an integer
MOST_LEVELS = 32  # of lists and objects inside one another
_TOO_DEEP = f"has more than {MOST_LEVELS} levels of lists and objects"


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
    remove_leftovers(target)
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


def check_apart(target: Path, inputs: Iterable[Path]) -> None:
    """Raise ValueError if writing to `target` would destroy one of the files that are read."""
    for each in inputs:
        if target.exists() and each.exists() and target.samefile(each):
            raise ValueError(f"{target} is one of the files that are read: choose another file to write to")


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


def save_tensors(path: Path, tensors: Mapping[str, "Tensor"], header: Mapping[str, Any]) -> None:
    """Save tensors and a JSON header in one file, whole or not at all."""
    from safetensors.torch import save_file  # with torch, which not every command needs

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
    """Delete what killed processes have left beside `path`, which can be as large as the file itself.

    What belongs to a process that is alive is in use, and stays.
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
    """Read what `save_tensors` has written; anything else is refused with the reason."""
    with _opened(path) as file:
        header = _header(file.metadata() or {}, path)
        return {name: file.get_tensor(name) for name in file.keys()}, header  # noqa: SIM118 (not a dict)


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    if path.exists() and not path.is_file():
        raise ValueError(f"{path} is no regular file: give the safetensors file of a network")
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except SafetensorError as error:
        raise ValueError(f"{path} is not a safetensors file, or is damaged ({error})") from None


def read_regular(path: Path) -> bytes:
    """Read a whole file, once; ValueError if it is no regular file, such as a pipe."""
    if path.exists() and not path.is_file():
        raise ValueError(f"{path} is no regular file: give the safetensors file of a network")
    return path.read_bytes()


def tensors_in(content: bytes, path: Path) -> dict[str, "Tensor"]:
    """Return the tensors of a safetensors file that was read from `path`; ValueError if it is no such file."""
    from safetensors.torch import load

    try:
        return load(content)
    except (SafetensorError, KeyError) as error:
        raise ValueError(f"{path} is not a safetensors file, or is damaged ({error})") from None


def header_in(content: bytes, path: Path) -> dict[str, Any]:
    """Return the JSON header of what `save_tensors` has written to `path`; ValueError for anything else."""
    try:
        metadata = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")]).get("__metadata__")
    except (ValueError, RecursionError, AttributeError) as error:
        raise ValueError(f"{path} is not a safetensors file, or is damaged ({error})") from None
    return _header(metadata if isinstance(metadata, dict) else {}, path)


def read_header(path: Path) -> dict[str, Any]:
    """Read the JSON header of what `save_tensors` has written; ValueError for anything else."""
    with _opened(path) as file:
        return _header(file.metadata() or {}, path)


def _header(metadata: Mapping[str, str], path: Path) -> dict[str, Any]:
    if not isinstance(metadata.get(HEADER), str):
        raise ValueError(f"{path} is a safetensors file, but was not written by linfdist: it has no {HEADER!r} header")
    if len(metadata[HEADER]) > MOST_BYTES:
        raise ValueError(f"{path} has a header of more than {MOST_BYTES:,} bytes")
    header = parse_json(metadata[HEADER], f"{path}, header")
    if not isinstance(header, dict):
        raise ValueError(f"{path}, header: must be a JSON object, got {excerpt(header)}")
    return header


def parse_json(text: str | bytes, where: str) -> Any:
    """Parse a JSON text; ValueError starts with `where` and says what is wrong.

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


def read_json_object(path: Path) -> dict[str, Any]:
    """Read a JSON file that holds an object, with `parse_json`; ValueError names the file."""
    with open(path, "rb") as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise ValueError(f"{path}: has more than {MOST_BYTES:,} bytes")
    value = parse_json(content, str(path))
    if not isinstance(value, dict):
        raise ValueError(f"{path}: must be a JSON object, got {excerpt(value)}")
    return value


def read_lines(path: Path, most_bytes: int = MOST_LINE_BYTES) -> Iterator[tuple[str, bytes]]:
    """Each line of a file, after the words that say where it is; ValueError names a line that is too long.

    One line is in memory at a time, however large the file is. Only the last line may lack its end.
    """
    with open(path, "rb") as file:
        for number, line in enumerate(iter(lambda: file.readline(most_bytes + 1), b""), start=1):
            where = f"{path}, line {number}"
            if len(line) > most_bytes:
                raise ValueError(f"{where}: has more than {most_bytes:,} bytes")
            yield where, line


def file_sha256(path: Path) -> str:
    """Return the sha256 of a file's bytes."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def excerpt(value: object) -> str:
    """Shorten a value for a message: its beginning, on one line."""
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
    """Raise ValueError for too many levels, and for text that no file can hold."""
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
