"""Files on full disks, in missing folders, behind links, under any umask: whole or not at all, told by their names."""

import json
import os
import random
import re
import signal
import socket
import stat
import struct
import subprocess
import sys

import pytest
import safetensors.torch
import torch

from linfdist.files import (
    alone,
    append,
    file_sha256,
    load_tensors,
    metadata_in,
    output,
    parse_json,
    parse_toml,
    read_bytes,
    read_json_object,
    read_lines,
    replacing,
    save_tensors,
    tensors_in,
    write_atomically,
    write_tensors,
)

from .ops.processes import ROOT, python

WRITERS = {
    "text": lambda path: write_atomically(path, "new" * 10),
    "tensors": lambda path: save_tensors(path, {"a": torch.zeros(3)}, {}),
}
READERS = {
    "bytes": read_bytes,
    "lines": lambda path: list(read_lines(path)),
    "JSON": read_json_object,
    "tensors": load_tensors,
    "sha256": file_sha256,
}
writers = pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)

# A disk that is full after 20,000 bytes. Python ignores SIGXFSZ, so that a write fails as it does on a full disk.
FULL = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))\n"


@writers
@pytest.mark.parametrize("umask", [0o022, 0o027, 0o077, 0o002])
def test_permissions_are_those_of_the_umask(write, umask, tmp_path):
    before = os.umask(umask)
    try:
        write(tmp_path / "file")
        write(tmp_path / "file")  # and of the one that replaces it
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o666 & ~umask


@writers
def test_a_link_stays_and_the_file_it_leads_to_is_replaced(write, tmp_path):
    """For paths that a user gives; nothing else is written through a link."""
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "real").write_text("old")
    (tmp_path / "link").symlink_to("far/real")
    (tmp_path / "new").symlink_to("far/not yet")
    for name, target in (("link", "real"), ("new", "not yet")):
        with pytest.raises(OSError, match=rf"cannot write .*/{name}: it is a symbolic link"):
            write(tmp_path / name)
        write(output(tmp_path / name))
        assert (tmp_path / name).is_symlink()
        assert (tmp_path / "far" / target).read_bytes() == (tmp_path / name).read_bytes() != b"old"
    assert sorted(os.listdir(tmp_path)) == ["far", "link", "new"]
    assert sorted(os.listdir(tmp_path / "far")) == ["not yet", "real"]


@writers
def test_a_link_into_a_missing_folder(write, tmp_path):
    (tmp_path / "link").symlink_to("none/file")
    with pytest.raises(FileNotFoundError, match=r"cannot write .*none/file"):
        write(output(tmp_path / "link"))
    assert os.listdir(tmp_path) == ["link"]


@writers
def test_errors_name_the_users_path(write, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "folder", tmp_path / "file" / "x", tmp_path / "none" / "x", tmp_path / ("x" * 300)):
        with pytest.raises(OSError, match=re.escape(str(path))) as caught:
            write(path)
        assert ".tmp" not in str(caught.value)
    assert sorted(os.listdir(tmp_path)) == ["file", "folder"]


ATTEMPTS = """
import torch, warnings
from pathlib import Path
from linfdist.export import to_onnx, to_torch_export
from linfdist.files import append, save_tensors, write_atomically
from linfdist.models import DistNet

warnings.simplefilter("ignore")
net = DistNet((1, 8, 8), 10, 64, 3, [0.3], 0.3).eval()
for name, write in {
    "text": lambda path: write_atomically(path, bytes(50_000)),
    "tensors": lambda path: save_tensors(path, {"a": torch.zeros(50_000)}, {}),
    "onnx": lambda path: to_onnx(net, path),
    "torch": lambda path: to_torch_export(net, path),
    "append": lambda path: append(path, "x" * 50_000),
}.items():
    try:
        write(Path(name))
    except OSError as error:
        print(error.filename, error.strerror, sep=": ")
"""


def test_a_full_disk(tmp_path):
    """Each writer says which file it was, and leaves the old one; nothing ends the process."""
    pytest.importorskip("onnx", reason="onnx writes the models")
    names = ["append", "onnx", "tensors", "text", "torch"]
    for name in names:
        (tmp_path / name).write_text("old")
    done = python("-c", f"import os, sys; os.chdir({str(tmp_path)!r})\n{FULL}{ATTEMPTS}")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"{name}: File too large" for name in names]
    assert sorted(os.listdir(tmp_path)) == names
    assert {(tmp_path / name).read_text() for name in names} == {"old"}


def test_appending(tmp_path):
    append(tmp_path / "rows", "one\n")
    append(tmp_path / "rows", "two ü\n")
    assert (tmp_path / "rows").read_text(encoding="utf-8") == "one\ntwo ü\n"


def test_a_writer_that_fails_leaves_nothing(tmp_path):
    def fail() -> None:
        with replacing(tmp_path / "file") as unfinished:
            unfinished.write_text("half")
            (unfinished.parent / "something of its own").write_text("")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert os.listdir(tmp_path) == []


def test_the_bytes_are_those_of_before(tmp_path):
    """The same tensors give the same file: cards state checksums."""
    for name in ("a", "b"):
        save_tensors(tmp_path / name, {"x": torch.arange(5), "y": torch.ones(2, 2).T}, {"k": 1})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert load_tensors(tmp_path / "a")[1] == {"k": 1}


# What is no regular file


@pytest.fixture(params=["pipe", "device", "folder", "socket", "link to a pipe"])
def special(request, tmp_path):
    path = tmp_path / "special"
    if request.param == "pipe":
        os.mkfifo(path)
    elif request.param == "device":
        path = type(path)("/dev/zero")
    elif request.param == "folder":
        path.mkdir()
    elif request.param == "socket":
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(path))
    else:
        os.mkfifo(tmp_path / "pipe")
        path.symlink_to("pipe")
    return path


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_only_regular_files_are_read(read, special):
    """At once: whoever opens a pipe as a file waits for its writer."""
    with pytest.raises((OSError, ValueError), match=r"not a regular file|No such device"):
        read(special)


@pytest.mark.parametrize("write", [*WRITERS.values(), lambda path: append(path, "x")], ids=[*WRITERS, "append"])
def test_only_regular_files_are_written(write, special):
    before = special.lstat()
    with pytest.raises(OSError, match="cannot write"):
        write(special)
    assert (special.lstat().st_ino, special.lstat().st_mode) == (before.st_ino, before.st_mode)


def test_appending_follows_no_link(tmp_path):
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    with pytest.raises(OSError, match="symbolic link"):
        append(tmp_path / "link", "new")
    assert (tmp_path / "real").read_text() == "old"


# Strict parsers


@pytest.mark.parametrize("parse", [parse_json, parse_toml])
@pytest.mark.parametrize("levels", [34, 1000, 100_000])
def test_levels_have_a_limit(parse, levels):
    text = "[" * levels + "]" * levels
    with pytest.raises(ValueError, match=r"^here: .*has more than 32 levels"):
        parse(text if parse is parse_json else f"a = {text}", "here")


def test_toml_levels_by_name():
    with pytest.raises(ValueError, match="32 levels"):
        parse_toml("[" + ".".join("a" * 40) + "]", "here")
    assert parse_toml("a.b = [1]", "here") == {"a": {"b": [1]}}


def as_file(header: str, data: bytes = b"") -> bytes:
    return struct.pack("<Q", len(header)) + header.encode() + data


ENTRY = '"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}'


@pytest.mark.parametrize(
    "header",
    [
        f"{{{ENTRY}, {ENTRY}}}",
        '{"__metadata__": {"linfdist": "{}", "linfdist": "{}"}, ' + ENTRY + "}",
        '{"__metadata__": {"linfdist": {}}, ' + ENTRY + "}",
        "{" + ENTRY.replace("[2]", "[2, 281474976710656, 0]").replace("[0, 8]", "[0, 0]") + "}",
        "{" + ENTRY.replace("[2]", "[-2]") + "}",
        "{" + ENTRY.replace("[2]", "[2.0]") + "}",
        "{" + ENTRY.replace("[2]", "[true, 2]") + "}",
        "{" + ENTRY.replace("[0, 8]", "[0, 8, 8]") + "}",
        "{" + ENTRY.replace('"F32"', '["F32"]') + "}",
        "{" + ENTRY + ', "b": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}',
        "{" + ENTRY.replace('"shape"', '"x": 1, "shape"') + "}",
    ],
)
def test_hostile_safetensors(header, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(as_file(header, bytes(8)))
    with pytest.raises(ValueError, match="file is not a safetensors file, or is damaged"):
        load_tensors(path)


DTYPES = (
    torch.int64, torch.float64, torch.float32, torch.int32, torch.bfloat16, torch.float16, torch.int16, torch.int8,
    torch.uint8, torch.bool,
)  # fmt: skip


def test_files_are_those_of_the_library(tmp_path):
    """Ours have the bytes that safetensors writes, where it has no choice; each reads what the other wrote."""
    tensors = {f"t{k}": torch.arange(k + 1).to(dtype) for k, dtype in enumerate(random.Random(0).sample(DTYPES, 10))}
    tensors |= {"none": torch.empty(0, 3), "one": torch.tensor(3.5), "z": torch.rand(3, 2).T}
    write_tensors(tmp_path / "ours", tensors, {"key": 'a "text"'})
    plain = {name: tensor.contiguous() for name, tensor in tensors.items()}
    theirs = safetensors.torch.save(plain, {"key": 'a "text"'})
    assert read_bytes(tmp_path / "ours") == theirs
    again = tensors_in(theirs, tmp_path)
    assert again.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert again[name].dtype == tensor.dtype
        assert torch.equal(again[name], tensor)
    assert metadata_in(theirs, tmp_path) == {"key": 'a "text"'}


def test_the_same_bytes_however_many_metadata(tmp_path):
    metadata = {str(k): "x" for k in range(20)}
    write_tensors(tmp_path / "a", {"x": torch.arange(5)}, metadata)
    header = json.loads(read_bytes(tmp_path / "a")[8:].split(b"}}")[0] + b"}}")
    assert list(header["__metadata__"]) == list(metadata)


def test_mapped_tensors_are_private(tmp_path):
    save_tensors(tmp_path / "file", {"x": torch.zeros(5)}, {})
    before = read_bytes(tmp_path / "file")
    load_tensors(tmp_path / "file")[0]["x"].fill_(1)
    assert read_bytes(tmp_path / "file") == before


# Locks

HOLD = """
import sys, time
from pathlib import Path
from linfdist.files import alone
with alone(Path(sys.argv[1]), "", ""):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_lock_says_who_holds_it_and_dies_with_its_process(tmp_path):
    path = tmp_path / ".lock"
    with subprocess.Popen([sys.executable, "-c", HOLD, path], cwd=ROOT, stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"held\n"
        for _ in range(2):  # to ask does not change the answer
            told = (
                rf"^another process \(pid {holder.pid} on {re.escape(socket.gethostname())}, since 20.*\) trains: wait"
            )
            with pytest.raises(ValueError, match=told), alone(path, "trains", "wait"):
                pass
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    with alone(path, "trains", "wait"):
        assert f"pid {os.getpid()} " in path.read_text()


def test_a_lock_that_is_a_link_empties_nothing(tmp_path):
    kept = tmp_path / "kept"
    kept.write_text("precious")
    (tmp_path / ".lock").symlink_to(kept)
    with pytest.raises(FileExistsError, match="symbolic link"), alone(tmp_path / ".lock", "works", "wait"):
        pass
    assert kept.read_text() == "precious"
