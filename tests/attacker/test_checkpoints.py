"""Whatever is offered to `--resume` in place of a checkpoint: refused on one line, and left exactly as it was."""

import json
import os
import pickle
import shutil
import signal
import sys

import pytest
import torch

from linfdist.files import load_tensors, save_tensors
from linfdist.training import Interrupted, train

from ..training.runs import FINISHED, files, stop_after, tiny

CHECKPOINT = "checkpoint.safetensors"


@pytest.fixture(scope="module")
def stopped_once(digits, tmp_path_factory):
    """A run that was stopped after its first epoch."""
    out = tmp_path_factory.mktemp("stopped") / "run"
    stop = stop_after(1, lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(Interrupted):
        train(tiny(), out, data_dir=digits, quiet=True, evaluate=stop)
    return out


@pytest.fixture
def stopped(stopped_once, tmp_path):
    """A copy to damage."""
    return shutil.copytree(stopped_once, tmp_path / "run")


def changed(change):
    def write(path):
        tensors, header = load_tensors(path)
        tensors = {name: tensor.clone() for name, tensor in tensors.items()}
        change(tensors, header)
        save_tensors(path, tensors, header)

    return write


def fill(start, end, value):
    def change(tensors, header):
        for name, tensor in tensors.items():
            if name.startswith(start) and name.endswith(end):
                tensor.fill_(value)

    return changed(change)


def other_type(start, dtype):
    return changed(
        lambda tensors, header: tensors.update(
            {name: tensor.to(dtype) for name, tensor in tensors.items() if name.startswith(start)}
        )
    )


def sums(**values):
    return changed(lambda tensors, header: header["sums"].update(values))


def step(value):
    return changed(lambda tensors, header: header.update(step=value))


def renamed(tensors, header):
    name = next(name for name in tensors if name.startswith("model/"))
    tensors[name + "s"] = tensors.pop(name)


def in_place_of(make):
    def replace(path):
        path.rename(path.with_name("kept"))
        make(path)

    return replace


OFFERED = {
    "a float step": step(10.0),
    "a truth value for a step": step(True),
    "a negative step": step(-1),
    "a step of twenty digits": step(10**19),
    "no step": step(None),
    "truth values for sums": sums(loss=True, correct=True, seen=True),
    "negative sums": sums(correct=-1, seen=-1),
    "more right than seen": sums(correct=129, seen=128),
    "sums of another name": sums(lost=0.0),
    "moments that are NaN": fill("optimiser/", "mean", torch.nan),
    "infinite moments": fill("optimiser/", "mean", torch.inf),
    "negative squares": fill("optimiser/", "square", -1.0),
    "weights that are NaN": fill("model/", "weight", torch.nan),
    "infinite shifts": fill("model/", "running_mean", torch.inf),
    "a std of zero": fill("model/", "std", 0.0),
    "weights of half precision": other_type("model/", torch.float16),
    "weights of double precision": other_type("model/", torch.float64),
    "whole numbers for moments": other_type("optimiser/", torch.int32),
    "wrong names": changed(renamed),
    "a name without an end": changed(lambda tensors, header: tensors.update({"model/": torch.zeros(1)})),
    "an unknown part": changed(lambda tensors, header: tensors.update({"another/x": torch.zeros(1)})),
    "half a file": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "one byte less": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "a pickle": lambda path: path.write_bytes(pickle.dumps({"step": 10})),
    "a file of torch": lambda path: torch.save({"step": 10}, path),
    "a network": lambda path: save_tensors(path, {"weight": torch.zeros(2)}, {"config": {}}),
    "a folder": in_place_of(lambda path: path.mkdir()),
    "a pipe": in_place_of(lambda path: os.mkfifo(path)),
    "a link to nowhere": in_place_of(lambda path: path.symlink_to("nowhere")),
    "a link to itself": in_place_of(lambda path: path.symlink_to(path.name)),
    "a link to a folder": in_place_of(lambda path: path.symlink_to(path.parent)),
}


def seen(folder):
    """All there is in a folder, to the byte, except the lock, which says who had it last."""
    return {
        path.name: path.read_bytes() if path.is_file() else os.readlink(path) if path.is_symlink() else None
        for path in folder.iterdir()
        if path.suffix != ".lock"
    }


@pytest.mark.skipif(sys.platform == "win32", reason="pipes and links")
@pytest.mark.timeout(60)  # a pipe that is opened would wait for ever
@pytest.mark.parametrize("offer", OFFERED.values(), ids=OFFERED)
def test_it_is_refused_and_nothing_is_lost(stopped, digits, offer):
    offer(stopped / CHECKPOINT)
    before = seen(stopped)
    with pytest.raises(ValueError, match=r"checkpoint\.safetensors") as it:
        train(tiny(), stopped, data_dir=digits, resume=True, quiet=True)
    assert "\n" not in str(it.value)
    assert len(str(it.value)) < 400 + len(str(stopped))
    assert seen(stopped) == before


@pytest.mark.skipif(sys.platform == "win32", reason="pipes")
@pytest.mark.timeout(60)
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: None], ids=["a pipe", "a folder", "nothing"])
def test_a_recipe_that_is_no_file(stopped, digits, make):
    (stopped / "recipe.json").unlink()
    make(stopped / "recipe.json")
    before = seen(stopped)
    with pytest.raises(ValueError, match=r"cannot be resumed: its recipe\.json cannot be read"):
        train(tiny(), stopped, data_dir=digits, resume=True, quiet=True)
    assert seen(stopped) == before


def test_a_checkpoint_of_another_recipe(stopped, digits, tmp_path):
    """The weights of a wider network under the recipe of a narrow one."""
    stop = stop_after(1, lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(Interrupted):
        train(tiny(width=16), tmp_path / "wide", data_dir=digits, quiet=True, evaluate=stop)
    shutil.copy(tmp_path / "wide" / CHECKPOINT, stopped)
    before = seen(stopped)
    with pytest.raises(ValueError, match=r"checkpoint\.safetensors does not fit this network: .* \(16, 64\)"):
        train(tiny(), stopped, data_dir=digits, resume=True, quiet=True)
    assert seen(stopped) == before


def test_a_link_to_a_checkpoint_is_as_good(stopped, digits):
    """It is followed once, then replaced by files of the run's own; what it leads to is left alone."""
    (stopped / CHECKPOINT).rename(stopped / "kept")
    (stopped / CHECKPOINT).symlink_to("kept")
    kept = (stopped / "kept").read_bytes()
    train(tiny(), stopped, data_dir=digits, resume=True, quiet=True)
    assert files(stopped) == FINISHED | {"kept"}
    assert (stopped / "kept").read_bytes() == kept


def test_a_run_folder_that_is_a_link(stopped, digits, tmp_path):
    (tmp_path / "link").symlink_to(stopped)
    train(tiny(), tmp_path / "link", data_dir=digits, resume=True, quiet=True)
    assert files(stopped) == FINISHED
    assert (tmp_path / "link").is_symlink()
    assert json.loads((stopped / "recipe.json").read_text())["width"] == 12
