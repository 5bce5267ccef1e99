"""Several processes are the training of one; stopped or killed, the same bits; what fails on one, fails on all."""

import json
import socket

import pytest
import torch
from torch import distributed

import linfdist
from linfdist.files import load_tensors
from linfdist.training import Diverged
from linfdist.training.batches import Batches
from linfdist.training.distributed import Workers

from .jobs import KILLED
from .runs import FINISHED, files, metrics, same_bits, start, tensors, tiny

pytestmark = pytest.mark.skipif(not distributed.is_gloo_available(), reason="torch was built without gloo")


@pytest.fixture(scope="module")
def jobs(digits, tmp_path_factory):
    """The folder of all jobs, and how their processes have ended."""
    folder = tmp_path_factory.mktemp("jobs")
    process = start("-m", "tests.training.jobs", str(folder), str(digits))
    output, errors = process.communicate(timeout=280)
    assert process.returncode == 0, errors
    (folder / "outcomes.json").write_text(output.splitlines()[-1])
    (folder / "output.txt").write_text(output)
    return folder


def ended(jobs, name):
    return json.loads((jobs / "outcomes.json").read_text())[name]


@pytest.mark.parametrize("processes", ["two", "four"])
def test_they_are_the_training_of_one(jobs, processes):
    """Mean shifts, gradients and metrics are those of the whole batch; in float64, so that roundings stay small."""
    several, one = tensors(jobs / processes), tensors(jobs / "one")
    assert several["last.weight"].dtype == torch.float64
    torch.testing.assert_close(several, one, rtol=0, atol=1e-6)
    for row, expected in zip(metrics(jobs / processes), metrics(jobs / "one"), strict=True):
        assert row == pytest.approx(expected, rel=1e-6)
    assert files(jobs / processes) == FINISHED


def test_all_ranks_draw_the_same_images(jobs):
    torch.testing.assert_close(tensors(jobs / "sampling of two"), tensors(jobs / "sampling"), rtol=0, atol=1e-6)
    losses = [[row["loss"] for row in metrics(jobs / name)] for name in ("sampling", "sampling of two")]
    assert losses[1] == pytest.approx(losses[0], rel=1e-6)


@pytest.mark.parametrize(
    ("way", "to"), [("again", "four"), ("stopped", "four"), ("killed", "two"), ("sampling stopped", "sampling of two")]
)
def test_same_bits(jobs, way, to):
    """Sums over processes have one order, whatever was bundled with what before and after a stop."""
    assert same_bits(tensors(jobs / way), tensors(jobs / to))
    assert metrics(jobs / way) == metrics(jobs / to)
    assert files(jobs / way) == FINISHED


def test_one_that_is_stopped_stops_all(jobs):
    assert set(ended(jobs, "stop")) == {"Interrupted: stopped at step 5 of 10; --resume continues from here"}


def test_another_number_of_processes_is_the_same_training_and_says_so(jobs):
    torch.testing.assert_close(tensors(jobs / "fewer"), tensors(jobs / "one"), rtol=0, atol=1e-6)
    assert not same_bits(tensors(jobs / "fewer"), tensors(jobs / "four"))
    note = "processes: 4 before, 2 from step 5 on; the training is the same up to rounding, but not bit for bit"
    assert (jobs / "output.txt").read_text().splitlines().count(note) == 1


def test_a_lost_process_is_noticed(jobs):
    other, lost = ended(jobs, "kill")
    assert lost == KILLED
    assert other.startswith("LostWorker: another process of this job is gone (")
    assert other.endswith(" Start the job again with --resume: it continues from the last checkpoint, if there is one")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("nan", "Diverged: the loss became nan at step 4 "),
        ("data", "JobError: process 1 on {host}: cannot store digits in {folder}/file/digits: Not a directory"),
        ("recipe", "width of the recipe is 12 in process 0 on {host}, 16 in process 1 on {host}. Give all of them"),
        ("version", "the version of linfdist is {version}"),
        ("images", "the training set is 1347×1×8×8, 10 classes, sha256 "),
        ("folder", "{folder}/there/recipe.json is not seen here: it must be in a folder that all processes share"),
        ("finished there", "holds is no run yet in process 0 on {host}, a finished run in process 1 on {host}. "),
        ("disk", "JobError: process 0 on {host}: [Errno 28] No space left on device"),
    ],
)
def test_what_fails_on_one_fails_on_all(jobs, name, text):
    """At once, with the reason; nobody waits for a process that has ended."""
    text = text.format(host=socket.gethostname(), folder=jobs, version=linfdist.__version__)
    outcomes = ended(jobs, name)
    assert len(outcomes) == 2
    assert all(text in outcome for outcome in outcomes), outcomes


def test_checkpoints_say_how_many_processes_made_them(jobs):
    """That of the job whose loss was not finite is from before."""
    header = load_tensors(jobs / "nan" / "checkpoint.safetensors")[1]
    assert (header["step"], header["processes"], header["sums"]["seen"]) == (4, 2, 4 * 128)


def test_batches_must_split():
    images, labels = torch.zeros(300, 1, 8, 8, dtype=torch.uint8), torch.zeros(300, dtype=torch.int64)
    with pytest.raises(ValueError, match="batch_size=128 does not split over 3 processes"):
        Batches(images, labels, tiny(), Workers(0, 3, torch.device("cpu")))


@pytest.mark.parametrize(
    ("text", "lost"),
    [("[gloo/transport/tcp/pair.cc:547] Connection closed by peer", True), ("NCCL error", True), ("shape", False)],
)
def test_how_a_lost_worker_shows(text, lost):
    assert Workers(0, 2, torch.device("cpu")).lost(RuntimeError(text)) == lost
    assert not Workers(0, 1, torch.device("cpu")).lost(RuntimeError(text))
    assert not Workers(0, 2, torch.device("cpu")).lost(Diverged(text, step=3))
