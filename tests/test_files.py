"""Files on full disks, in missing folders, behind links, under any umask: whole or not at all, told by their names."""

import os
import re
import stat

import pytest
import torch

from linfdist.files import append, load_tensors, replacing, save_tensors, write_atomically

from .ops.processes import python

WRITERS = {
    "text": lambda path: write_atomically(path, "new" * 10),
    "tensors": lambda path: save_tensors(path, {"a": torch.zeros(3)}, {}),
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
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "real").write_text("old")
    (tmp_path / "link").symlink_to("far/real")
    (tmp_path / "new").symlink_to("far/not yet")
    for name, target in (("link", "real"), ("new", "not yet")):
        write(tmp_path / name)
        assert (tmp_path / name).is_symlink()
        assert (tmp_path / "far" / target).read_bytes() == (tmp_path / name).read_bytes() != b"old"
    assert sorted(os.listdir(tmp_path)) == ["far", "link", "new"]
    assert sorted(os.listdir(tmp_path / "far")) == ["not yet", "real"]


@writers
def test_a_link_into_a_missing_folder(write, tmp_path):
    (tmp_path / "link").symlink_to("none/file")
    with pytest.raises(FileNotFoundError, match="link"):
        write(tmp_path / "link")
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
