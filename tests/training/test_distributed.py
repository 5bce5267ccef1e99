"""`torchrun` with two real processes is the training of one; a lost one ends the job, which resumes."""

import os
import signal
import time

import pytest
import torch
from torch import distributed

from linfdist.training import Diverged, train
from linfdist.training.distributed import Workers

from .runs import AS_TEXT, FINISHED, files, metrics, start, tensors, tiny

pytestmark = pytest.mark.skipif(not distributed.is_gloo_available(), reason="torch was built without gloo")

TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
# The command line, in float64 if asked; each process notes its id; checkpoints at every step.
PROGRAM = """
import functools, importlib, os, pathlib, torch
from linfdist import training
from linfdist.cli import main

if os.environ.get("IN_DOUBLE"):
    torch.set_default_dtype(torch.float64)
verb = importlib.import_module("linfdist.cli.train")
verb.run = functools.partial(training.train, checkpoint_seconds=0)
pathlib.Path(os.environ["NOTES"], "rank" + os.environ.get("RANK", "0")).write_text(str(os.getpid()))
main()
"""


@pytest.fixture
def command(digits, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)

    def command(out, *more):
        places = ("--data-dir", str(digits), "--out", str(out))
        return (str(program), "train", "digits-quick", *AS_TEXT, "--quiet", *places, *more)

    return command


def finish(process, code=0):
    output, errors = process.communicate(timeout=120)
    assert process.returncode == code if code == 0 else process.returncode != 0, output + errors
    return output, errors


@pytest.fixture
def notes(tmp_path):
    folder = tmp_path / "notes"
    folder.mkdir()
    return str(folder)


def test_two_processes_equal_one(command, notes, tmp_path):
    both = start(*TORCHRUN, *command(tmp_path / "two"), IN_DOUBLE="1", NOTES=notes)
    output, _ = finish(both)
    finish(start(*command(tmp_path / "one"), IN_DOUBLE="1", NOTES=notes))
    two, one = tensors(tmp_path / "two"), tensors(tmp_path / "one")
    assert two["last.weight"].dtype == torch.float64
    torch.testing.assert_close(two, one, rtol=0, atol=1e-6)
    for row, expected in zip(metrics(tmp_path / "two"), metrics(tmp_path / "one"), strict=True):
        assert row.pop("p") == expected.pop("p")
        assert row == pytest.approx(expected, rel=1e-6)
    # the first process alone writes and speaks
    assert {path.name for path in (tmp_path / "notes").iterdir()} == {"rank0", "rank1"}
    assert files(tmp_path / "two") == FINISHED
    assert [line.split()[0] for line in output.splitlines()] == ["epoch", "epoch", "epoch", "finished:"]


@pytest.mark.slow
def test_the_command_as_documented(digits, tmp_path):
    """In float32 the losses agree. Weights whose gradients cancel may not: Adam makes full steps of their rounding."""
    arguments = ["train", "digits-quick", *AS_TEXT, "--set", "epochs=0.5", "--data-dir", str(digits), "--out"]
    finish(start(*TORCHRUN, "-m", "linfdist", *arguments, str(tmp_path / "two")))
    finish(start("-m", "linfdist", *arguments, str(tmp_path / "one")))
    (two,), (one,) = metrics(tmp_path / "two"), metrics(tmp_path / "one")
    assert two["loss"] == pytest.approx(one["loss"], rel=1e-3)
    assert files(tmp_path / "two") == FINISHED


def wait_for(condition, process):
    end = time.monotonic() + 90
    while not condition() and time.monotonic() < end:
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)


@pytest.mark.slow
def test_a_lost_worker_ends_the_job_and_it_resumes(command, notes, digits, tmp_path):
    out, long = tmp_path / "run", ("--set", "epochs=200")
    process = start(*TORCHRUN, *command(out, *long), NOTES=notes)
    wait_for((out / "checkpoint.safetensors").exists, process)
    os.kill(int((tmp_path / "notes" / "rank1").read_text()), signal.SIGKILL)
    _, errors = finish(process, code=1)
    assert "another process of this job is gone" in errors
    assert "--resume" in errors
    assert "checkpoint.safetensors" in files(out)

    process = start(*TORCHRUN, *command(out, *long, "--resume"), NOTES=notes)
    before = (out / "checkpoint.safetensors").stat().st_mtime_ns
    wait_for(lambda: (out / "checkpoint.safetensors").stat().st_mtime_ns > before, process)
    process.send_signal(signal.SIGINT)  # to torchrun, which passes it on
    _, errors = finish(process, code=1)
    assert errors.count("--resume continues from here") == 1


def test_batches_must_split(digits, tmp_path):
    from linfdist.training.batches import Batches

    images, labels = torch.zeros(300, 1, 8, 8, dtype=torch.uint8), torch.zeros(300, dtype=torch.int64)
    with pytest.raises(ValueError, match="batch_size=128 does not split over 3 processes"):
        Batches(images, labels, tiny(), Workers(0, 3, torch.device("cpu")))


def test_all_must_see_the_checkpoint(digits, tmp_path, monkeypatch):
    """On several machines without a shared folder, only the first would."""
    monkeypatch.setattr(Workers, "sum", lambda self, mine: {name: 2 * value + 1 for name, value in mine.items()})
    with pytest.raises(ValueError, match="must be a folder they share"):
        train(tiny(), tmp_path / "run", data_dir=digits)


@pytest.mark.parametrize(
    ("text", "lost"),
    [("[gloo/transport/tcp/pair.cc:547] Connection closed by peer", True), ("NCCL error", True), ("shape", False)],
)
def test_how_a_lost_worker_shows(text, lost):
    assert Workers(0, 2, torch.device("cpu")).lost(RuntimeError(text)) == lost
    assert not Workers(0, 1, torch.device("cpu")).lost(RuntimeError(text))
    assert not Workers(0, 2, torch.device("cpu")).lost(Diverged(text, step=3))
