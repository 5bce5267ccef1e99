"""The stored files: whole or not there, intact or refused, made once however many ask."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import linfdist.data as data
from linfdist.cli import app
from linfdist.data import catalogue, store
from linfdist.data.builtin import Builtin, Content, Corrupt, DataError, Info, Source

SMALL = Info("small", "Small", (1, 2, 3), 3, 5, 4, (0.5,), 0.25)


def small() -> Content:
    rng = np.random.default_rng(0)
    splits = {
        split: (rng.integers(0, 256, (count, 1, 2, 3), dtype=np.uint8), rng.integers(0, 3, count))
        for split, count in (("train", 5), ("test", 4))
    }
    return Content(splits, ("a", "b", "ü"))


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """A data set named small; the list grows with every call of its source."""
    made: list[Path] = []

    def read(work: Path) -> Content:
        made.append(work)
        (work / "download").write_bytes(b"1")
        return small()

    builtin = Builtin(SMALL, lambda root: None, (Source("memory", read),), "nothing to do")
    monkeypatch.setitem(catalogue._BUILTIN, "small", builtin)
    return made


def test_made_once_then_read(tmp_path, calls):
    for split, (pixels, labels) in small().splits.items():
        for _ in range(2):
            loaded = data.load("small", split, tmp_path)
            assert loaded.name == "small"
            assert loaded.classes == ("a", "b", "ü")
            assert np.array_equal(loaded.images.numpy(), pixels)
            assert loaded.labels.dtype == torch.int64
            assert np.array_equal(loaded.labels.numpy(), labels)
    assert len(calls) == 1
    assert not calls[0].exists()
    assert sorted(path.name for path in (tmp_path / "small").iterdir() if path.name != ".lock") == [
        "test.safetensors",
        "train.safetensors",
    ]
    fetched = data.fetch("small", tmp_path)
    assert (fetched.fresh, fetched.source, fetched.folder) == (False, "memory", tmp_path / "small")


def test_writing_to_the_images_does_not_reach_the_file(tmp_path, calls):
    data.load("small", "train", tmp_path).images.zero_()
    assert data.load("small", "train", tmp_path).images.any()


@pytest.mark.skipif(os.name == "nt", reason="no umask")
def test_others_may_read_if_the_umask_says_so(tmp_path, calls):
    before = os.umask(0o022)
    try:
        data.fetch("small", tmp_path)
    finally:
        os.umask(before)
    assert (tmp_path / "small" / "train.safetensors").stat().st_mode & 0o777 == 0o644


def test_a_second_call_takes_no_time(tmp_path, monkeypatch):
    pixels, labels = np.zeros((60000, 1, 28, 28), np.uint8), np.zeros(60000, np.int64)
    content = Content({"train": (pixels, labels), "test": (pixels[:10], labels[:10])}, ("a",))
    builtin = Builtin(SMALL, lambda root: None, (Source("memory", lambda work: content),), "")
    monkeypatch.setitem(catalogue._BUILTIN, "small", builtin)
    data.fetch("small", tmp_path)
    start = time.process_time()
    assert len(data.load("small", "train", tmp_path)) == 60000
    assert time.process_time() - start < 1


@pytest.mark.parametrize("split", ["train", "test"])
def test_every_changed_byte_is_noticed(tmp_path, calls, split):
    data.fetch("small", tmp_path)
    path = tmp_path / "small" / f"{split}.safetensors"
    intact = path.read_bytes()
    source = intact.index(b"memory")
    for place in range(len(intact)):
        if source <= place < source + 6:
            continue  # the name of the source is for people to read
        harmed = bytearray(intact)
        harmed[place] ^= 0x11
        path.write_bytes(harmed)
        try:
            loaded = store.read(tmp_path, SMALL, split).dataset
        except Corrupt as error:
            assert str(path) in str(error)  # noqa: PT017
            assert "linfdist data fetch small" in str(error)  # noqa: PT017
        else:  # white space or the like
            assert np.array_equal(loaded.images.numpy(), small().splits[split][0]), place
            assert np.array_equal(loaded.labels.numpy(), small().splits[split][1]), place
            assert loaded.classes == small().classes, place


@pytest.mark.parametrize("keep", [0, 5, 100, -1])
def test_a_truncated_file_is_refused_and_fetch_replaces_it(tmp_path, calls, keep):
    data.fetch("small", tmp_path)
    path = tmp_path / "small" / "train.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(Corrupt, match=r"train\.safetensors is damaged"):
        data.load("small", "train", tmp_path)
    assert data.fetch("small", tmp_path).fresh
    assert len(data.load("small", "train", tmp_path)) == 5


def test_files_that_changed_places_are_refused(tmp_path, calls):
    data.fetch("small", tmp_path)
    os.replace(tmp_path / "small" / "test.safetensors", tmp_path / "small" / "train.safetensors")
    with pytest.raises(Corrupt, match="its header says"):
        data.load("small", "train", tmp_path)


def test_where_data_is_stored(tmp_path, monkeypatch):
    monkeypatch.setenv("LINFDIST_DATA", str(tmp_path / "env"))
    assert data.data_root() == tmp_path / "env"
    assert data.data_root(tmp_path / "given") == tmp_path / "given"
    monkeypatch.delenv("LINFDIST_DATA")
    assert data.data_root().parts[-2:] == ("linfdist", "data")
    assert data.data_root("~/x") == Path.home() / "x"


def test_a_folder_that_cannot_be_written(tmp_path, calls):
    (tmp_path / "file").touch()
    with pytest.raises(data.DataError, match=r"cannot store small in .*--data-dir"):
        data.load("small", "train", tmp_path / "file")


def test_a_stored_set_needs_no_writing(tmp_path, calls, monkeypatch):
    data.fetch("small", tmp_path)
    monkeypatch.setattr(store, "lock", lambda place: pytest.fail("the folder may be read-only"))
    assert len(data.load("small", "test", tmp_path)) == 4
    assert not data.fetch("small", tmp_path).fresh


# Other processes. They know a data set `small` whose source leaves a mark, and can be told to stop somewhere.

SCRIPT = """
import os, sys, time
from pathlib import Path
import safetensors.torch, torch
from linfdist.data import catalogue, store
from linfdist.data.builtin import Builtin, Source
from tests.data.test_store import SMALL, small

root, stop = Path(sys.argv[1]), sys.argv[2]

def halt(here):
    if here == stop:
        print("halted", flush=True)
        time.sleep(600)

def read(work):
    (work / "half").write_bytes(b"half a download")
    halt("download")
    with open(root / "marks", "a") as marks:
        marks.write("x")
    time.sleep(0.5)
    return small()

save, replace = store.write_tensors, os.replace

def write_tensors(path, tensors, metadata):
    save(path, tensors, metadata)
    if stop == "write":
        os.truncate(path, 100)
    halt("write")

def rename(source, target):
    replace(source, target)
    halt("rename")

store.write_tensors, store.os.replace = write_tensors, rename
catalogue._BUILTIN["small"] = Builtin(SMALL, lambda root: None, (Source("memory", read),), "")
print(catalogue.load("small", "train", root).images.sum().item(), flush=True)
"""


def start(root: Path, stop: str = "") -> subprocess.Popen[str]:
    project = Path(__file__).parents[2]
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(root), stop], cwd=project, stdout=subprocess.PIPE, text=True
    )


@pytest.mark.skipif(os.name == "nt", reason="needs SIGKILL")
@pytest.mark.parametrize("stop", ["download", "write", "rename"])
def test_killed_at_any_moment_nothing_half_is_used(tmp_path, calls, stop):
    process = start(tmp_path, stop)
    with process:
        assert process.stdout.readline() == "halted\n"
        process.send_signal(signal.SIGKILL)
    place = tmp_path / "small"
    assert list(place.glob("fetching-*"))
    for path in place.glob("*.safetensors"):
        store.read(tmp_path, SMALL, path.stem)
    for split, (pixels, _) in small().splits.items():
        assert np.array_equal(data.load("small", split, tmp_path).images.numpy(), pixels)
    assert not list(place.glob("fetching-*"))
    assert len(calls) == 1


def test_many_processes_at_once(tmp_path):
    running = [start(tmp_path) for _ in range(3)]
    printed = []
    for process in running:
        with process:
            printed.append(process.stdout.read())
        assert process.returncode == 0
    assert set(printed) == {f"{small().splits['train'][0].sum()}\n"}
    assert (tmp_path / "marks").read_text() == "x"


# The command


def run(*arguments: object):
    return CliRunner().invoke(app, ["data", *map(str, arguments)], env={"COLUMNS": "200"})


def test_data_list_and_fetch(tmp_path):
    listing = run("list", "--data-dir", tmp_path)
    assert listing.exit_code == 0
    for name in data.NAMES:
        assert name in listing.output
    assert "non-commercial" in listing.output
    assert "MB" not in listing.output

    first, second = run("fetch", "digits", "--data-dir", tmp_path), run("fetch", "digits", "--data-dir", tmp_path)
    assert "fetched in" in first.output
    assert "stored already, intact" in second.output
    assert "scikit-learn" in second.output
    assert "MB" in run("list", "--data-dir", tmp_path).output

    path = tmp_path / "digits" / "test.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    assert "fetched in" in run("fetch", "digits", "--data-dir", tmp_path).output


def test_data_fetch_errors(tmp_path):
    unknown = run("fetch", "imagenet", "--data-dir", tmp_path)
    assert unknown.exit_code == 2
    assert "unknown data set imagenet" in unknown.output
    (tmp_path / "file").touch()
    failed = run("fetch", "digits", "--data-dir", tmp_path / "file")
    assert failed.exit_code == 1
    assert "cannot store digits" in failed.output


def test_what_a_killed_fetch_has_left_is_removed_even_when_the_set_is_stored(tmp_path):
    data.fetch("digits", tmp_path)
    left = [tmp_path / "digits" / name for name in ("fetching-x", f".train.safetensors.{2**30}.tmp")]
    for folder in left:
        (folder / "inside").mkdir(parents=True)
    assert not data.fetch("digits", tmp_path).fresh
    assert not any(folder.exists() for folder in left)


def test_the_same_data_give_the_same_bytes(tmp_path, calls):
    """In any process: the order of what a file says about itself is fixed."""
    for name in ("one", "two"):
        data.fetch("small", tmp_path / name)
    one, two = ((tmp_path / name / "small" / "train.safetensors").read_bytes() for name in ("one", "two"))
    assert one == two
    said = json.loads(one[8 : 8 + int.from_bytes(one[:8], "little")])["__metadata__"]
    assert list(said) == ["format", "name", "split", "classes", "source", "sha256"]


def test_a_pipe_in_place_of_a_stored_file(tmp_path, calls):
    data.fetch("small", tmp_path)
    path = tmp_path / "small" / "train.safetensors"
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(Corrupt, match=r"train\.safetensors is damaged .*not a regular file"):
        data.load("small", "train", tmp_path)
    with pytest.raises(DataError, match=r"cannot store small in .*it is a pipe or a device"):
        data.fetch("small", tmp_path)


def test_a_file_that_others_may_not_read_is_not_called_damaged(tmp_path, calls):
    data.load("small", "test", tmp_path)
    path = store.file(tmp_path, "small", "test")
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("the administrator reads everything")
    with pytest.raises(PermissionError, match=r"test\.safetensors"):
        data.load("small", "test", tmp_path)
