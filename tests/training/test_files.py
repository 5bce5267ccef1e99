"""Files are written whole or not at all, and only what we wrote is read."""

import json
import os
import pickle
import struct

import pytest
import torch
from safetensors.torch import save_file

from linfdist import models
from linfdist.files import alone, load_tensors, remove_leftovers, save_tensors, write_atomically
from linfdist.models import DistNet
from linfdist.runs.folder import Run
from linfdist.training import train
from linfdist.training.progress import Metrics

from .runs import FINISHED, files, tiny

TENSORS = {"a": torch.arange(6.0).view(2, 3), "b": torch.tensor(1.5), "c": torch.rand(4, 3).T}
WRITERS = [lambda path: save_tensors(path, TENSORS, {}), lambda path: write_atomically(path, "x")]


def test_round_trip(tmp_path):
    path = tmp_path / "file"
    save_tensors(path, TENSORS, {"step": 3, "text": "ü"})
    tensors, header = load_tensors(path)
    assert header == {"step": 3, "text": "ü"}
    assert tensors.keys() == TENSORS.keys()
    assert all(torch.equal(tensors[name], tensor) for name, tensor in TENSORS.items())
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("write", WRITERS)
def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, write):
    path = tmp_path / "file"
    path.write_text("old")

    def fail(*_):
        raise OSError("no space left on device")

    for function in ("fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(os, function, fail)
            with pytest.raises(OSError, match="no space left"):
                write(path)
        assert path.read_text() == "old"
        assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("write", WRITERS)
def test_a_folder_that_is_not_there_is_an_os_error(tmp_path, write):
    with pytest.raises(OSError, match="none"):
        write(tmp_path / "none" / "file")


def test_leftovers_of_one_file_only(tmp_path):
    """Those of processes that are gone; what a process that is alive writes to is left alone."""
    gone, mine = 2**30, os.getpid()
    for name in (
        f".file.{gone}.tmp",
        f".file.{gone + 1}.tmp",
        f".file.{mine}.tmp",
        f".other.{gone}.tmp",
        "file",
        "file.tmp",
    ):
        (tmp_path / name).write_text("")
    remove_leftovers(tmp_path / "file")
    assert sorted(os.listdir(tmp_path)) == sorted([f".file.{mine}.tmp", f".other.{gone}.tmp", "file", "file.tmp"])


class Evil:
    def __reduce__(self):
        return os.mkdir, ("evil",)


def raw(header: bytes, data: bytes = b"") -> bytes:
    return struct.pack("<Q", len(header)) + header + data


def tensor(**changes) -> bytes:
    return json.dumps({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **changes}}).encode()


FOREIGN = {
    "empty": b"",
    "text": b"hello",
    "zip": b"PK\x03\x04" + bytes(100),
    "pickle": pickle.dumps(Evil()),
    "huge header": struct.pack("<Q", 2**62) + b"{}",
    "header is no JSON": raw(b"{" * 40),
    "header is deep": raw(b"[" * 100_000),
    "header is a list": raw(b"[]"),
    "shape beyond the data": raw(tensor(shape=[2**40]), bytes(8)),
    "shape that overflows": raw(tensor(shape=[2**63, 2]), bytes(8)),
    "offsets beyond the data": raw(tensor(data_offsets=[0, 80]), bytes(8)),
    "offsets backwards": raw(tensor(data_offsets=[8, 0]), bytes(8)),
    "unknown type": raw(tensor(dtype="F33"), bytes(8)),
    "truncated": raw(tensor(), bytes(7)),
    "trailing": raw(tensor(), bytes(9)),
    "not ours": raw(tensor(), bytes(8)),
}


@pytest.mark.parametrize("content", FOREIGN.values(), ids=FOREIGN)
def test_what_we_did_not_write_is_refused(tmp_path, monkeypatch, content):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"model\.safetensors"):
        load_tensors(path)
    with pytest.raises(ValueError, match=r"model\.safetensors"):
        models.load(tmp_path)
    assert os.listdir(tmp_path) == ["model.safetensors"]


def test_a_torch_file_is_refused(tmp_path):
    torch.save({"a": torch.zeros(1)}, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match="not a safetensors file"):
        models.load(tmp_path)


@pytest.mark.parametrize(
    "header", ["", "[]", "3", "{", "[" * 100_000, '{"a": ' + "1" * 5000 + "}"], ids=lambda header: header[:9]
)
def test_a_bad_header_is_refused(tmp_path, header):
    save_file({"a": torch.zeros(1)}, tmp_path / "file", metadata={"linfdist": header})
    with pytest.raises(ValueError, match="header"):
        load_tensors(tmp_path / "file")


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises((OSError, ValueError)):
        load_tensors(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"holds no model\.safetensors"):
        models.load(tmp_path)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        models.load(tmp_path / "none")


CONFIG = DistNet((1, 4, 4), 3, 5, 3, [0.5], 0.3).config
HOSTILE = {
    "huge width": {"width": 2**40},
    "width that overflows": {"width": 2**62},
    "huge depth": {"depth": 10**12},
    "negative width": {"width": -5},
    "width is text": {"width": "5"},
    "width is a fraction": {"width": 5.5},
    "classes": {"classes": 10**12},
    "huge shape": {"shape": [1, 2**31, 2**31]},
    "shape is text": {"shape": "1"},
    "std is 0": {"std": 0.0},
    "std is NaN": {"std": float("nan")},
    "mean is null": {"mean": None},
    "another class": {"class": "eval"},
    "another key": {"code": "x"},
    "class is a list": {"class": ["DistNet"]},
    "wider": {"width": 6},
}


@pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE)
def test_a_header_that_lies_is_refused_at_once(tmp_path, change):
    """No memory is taken on its word."""
    net = DistNet((1, 4, 4), 3, 5, 3, [0.5], 0.3)
    save_tensors(tmp_path / "model.safetensors", net.state_dict(), {"config": {**CONFIG, **change}})
    with pytest.raises(ValueError, match=r"model\.safetensors"):
        models.load(tmp_path)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused(tmp_path, value):
    net = DistNet((1, 4, 4), 3, 5, 3, [0.5], 0.3)
    net.last.weight.data[0, 0] = value
    models.save(net, tmp_path / "model.safetensors", {})
    with pytest.raises(ValueError, match=r"last\.weight has values that are not finite"):
        models.load(tmp_path)


@pytest.mark.parametrize("std", [0.0, -1.0])
def test_a_std_that_breaks_the_order_of_bounds_is_refused(tmp_path, std):
    net = DistNet((1, 4, 4), 3, 5, 3, [0.5], 0.3)
    net.body.layers[0].std.fill_(std)
    models.save(net, tmp_path / "model.safetensors", {})
    with pytest.raises(ValueError, match="std must be positive"):
        models.load(tmp_path)


def test_loading_leaves_no_trace_of_the_file(tmp_path):
    """The weights are copies: the file may change or go."""
    net = DistNet((1, 4, 4), 3, 5, 3, [0.5], 0.3).eval()
    models.save(net, tmp_path / "model.safetensors", {})
    again = models.load(tmp_path)
    size = (tmp_path / "model.safetensors").stat().st_size
    with open(tmp_path / "model.safetensors", "r+b") as file:
        file.write(bytes(size))
    x = torch.rand(3, 1, 4, 4)
    assert torch.equal(again(x), net(x))
    assert not any(parameter.is_meta for parameter in again.parameters())
    assert all(parameter.requires_grad for parameter in again.parameters())


def test_seconds_continue_over_resumptions(tmp_path):
    path = tmp_path / "metrics.jsonl"
    seconds = ((1, 60.0), (2, 100.0), (3, 130.0), (4, 140.0))
    rows = [{"step": step, "epoch": step, "seconds": each, "cpu_seconds": 2 * each} for step, each in seconds]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    metrics = Metrics(path, 3)
    assert (metrics.seconds, metrics.cpu_seconds) == (130.0, 260.0)
    metrics.add({"step": 5, "epoch": 5, "seconds": metrics.seconds + 104.0, "cpu_seconds": 400.0})
    assert [json.loads(line)["seconds"] for line in path.read_text().splitlines()] == [60.0, 100.0, 130.0, 234.0]
    assert Run(tmp_path).seconds == 234.0


# Metrics, and what else is in the folder of a run that begins or is resumed


def row(step: int, **changes) -> str:
    values = {"step": step, "epoch": step, "seconds": 60.0 * step, "cpu_seconds": 120.0 * step} | changes
    return json.dumps(values) + "\n"


def test_only_a_last_line_that_was_cut_off_is_dropped(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text(row(1) + row(2) + row(3)[:20])
    assert Metrics(path, 3).seconds == 120.0
    assert path.read_text() == row(1) + row(2)


DAMAGED = {
    "cut off": row(2)[:20] + "\n",
    "a list": "[]\n",
    "no seconds": '{"step": 2, "epoch": 2}\n',
    "no cpu_seconds": '{"step": 2, "epoch": 2, "seconds": 3.0}\n',
    "NaN": row(2, seconds=float("nan")),
    "infinity": row(2, seconds=float("inf")),
    "text": row(2, seconds="x"),
    "deep": "[" * 60_000 + "\n",
    "a key twice": '{"step": 1, "step": 2, "epoch": 2, "seconds": 3.0, "cpu_seconds": 3.0}\n',
    "no text": "\udcff\n",
}


@pytest.mark.parametrize("line", DAMAGED.values(), ids=DAMAGED)
def test_no_row_is_lost_to_a_damaged_line(tmp_path, line):
    path = tmp_path / "metrics.jsonl"
    rest = "" if "epoch" in line and "cpu" not in line else row(3)
    path.write_bytes((row(1) + line + rest).encode(errors="surrogateescape"))
    before = path.read_bytes()
    with pytest.raises(ValueError, match=r"metrics\.jsonl(, line 2: | is damaged)"):
        Metrics(path, 3)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["metrics.jsonl"]


def test_what_is_not_finite_becomes_null(tmp_path):
    metrics = Metrics(tmp_path / "metrics.jsonl", 0)
    metrics.add({"step": 1, "epoch": 1, "seconds": 1.0, "cpu_seconds": 1.0, "clean": float("nan"), "p": float("inf")})
    assert Run(tmp_path).metrics[0]["clean"] is None
    assert Metrics(tmp_path / "metrics.jsonl", 1).seconds == 1.0


@pytest.mark.parametrize("name", ["metrics.jsonl", "recipe.json", "checkpoint.safetensors", "model.safetensors"])
@pytest.mark.parametrize("kind", ["link", "link to nowhere", "pipe"])
def test_a_training_writes_through_no_link_and_waits_for_no_pipe(digits, tmp_path, name, kind):
    out, far = tmp_path / "run", tmp_path / "far"
    out.mkdir()
    if kind == "link":
        far.write_text("of somebody else")
    if kind == "pipe":
        os.mkfifo(out / name)
    else:
        (out / name).symlink_to(far)
    before = (out / name).lstat()
    with pytest.raises((OSError, ValueError), match=rf"{name}|{out} holds a"):
        train(tiny(epochs=1), out, data_dir=digits, quiet=True, checkpoint_seconds=0)
    assert far.exists() == (kind == "link")
    assert kind != "link" or far.read_text() == "of somebody else"
    assert (out / name).lstat().st_ino == before.st_ino


def test_one_training_at_a_time(digits, tmp_path):
    out = tmp_path / "run"
    out.mkdir()
    with (
        alone(out / ".training.lock", "", ""),
        pytest.raises(
            ValueError, match=rf"another process \(pid {os.getpid()} on .*, since .*\) trains into .*run: wait"
        ),
    ):
        train(tiny(epochs=1), out, data_dir=digits, quiet=True)
    assert files(out) == set()
    train(tiny(epochs=0.2), out, data_dir=digits, quiet=True)
    assert files(out) == FINISHED


def test_a_recipe_that_lost_a_key(digits, tmp_path):
    """What is not there is called so; recipes of before may lack keys that have defaults."""
    out = train(tiny(epochs=0.2), tmp_path / "run", data_dir=digits, quiet=True)
    kept = json.loads((out / "recipe.json").read_text())
    del kept["data"]
    (out / "recipe.json").write_text(json.dumps(kept))
    with pytest.raises(ValueError, match="data: None there, 'digits' now"):
        train(tiny(epochs=0.2), out, data_dir=digits, quiet=True, resume=True)


@pytest.mark.parametrize("content", ["[" * 100_000, '{"a": 1, "a": 2}', '{"a": NaN}', "[]"], ids=lambda text: text[:9])
def test_a_recipe_that_is_no_json(digits, tmp_path, content):
    (tmp_path / "checkpoint.safetensors").touch()
    (tmp_path / "recipe.json").write_text(content)
    with pytest.raises(ValueError, match=r"cannot be resumed: its recipe\.json cannot be read"):
        train(tiny(), tmp_path, data_dir=digits, quiet=True, resume=True)
