"""Killed at any moment, an evaluation that is started again ends with the rows of one that was not."""

import os
import subprocess
import sys

import pytest

from linfdist import models
from linfdist.evaluation import evaluate

from .files import same_results

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks and kills")

# Forks an evaluation over and over, each killed at another moment; then lets one finish. A moment is a time in seconds,
# or the count of a call of os.fsync or os.replace, and whether to die before or after it.
PROGRAM = """
import os, pathlib, signal, sys, time
from linfdist import data, models
from linfdist.evaluation import evaluate, gallery

gallery.ROUNDS = 1
out, run, folder, moments = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3], sys.argv[4:]
network, images = models.load(run), data.load("digits", "test", folder)

def go():
    evaluate(network, images, "0.1", out, run / "model.safetensors", attacks=("pgd",), batch=20, limit=150)

def die_at(name, count, when):
    original = getattr(os, name)
    def dying(*arguments):
        nonlocal count
        count -= 1
        if count == 0 and when == "after":
            original(*arguments)
        if count == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*arguments)
    setattr(os, name, dying)

for moment in moments:
    child = os.fork()
    if not child:
        if ":" in moment:
            name, count, when = moment.split(":")
            die_at(name, int(count), when)
        go()
        os._exit(0)
    if ":" not in moment:
        time.sleep(float(moment))
        os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    print("killed" if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL else "not killed")
go()
"""


@pytest.fixture(scope="module")
def whole(run, test_set, tmp_path_factory):
    out = tmp_path_factory.mktemp("whole")
    model = run / "model.safetensors"
    evaluate(models.load(run), test_set, "0.1", out, model, attacks=("pgd",), batch=20, limit=150)
    return out


AROUND_FILES = [
    *("replace:1:before", "replace:1:after"),  # the header, with which all begins
    *("fsync:1:before", "fsync:3:after", "fsync:1:after"),  # batches
    *(f"replace:{count}:{when}" for count in (1, 2, 3) for when in ("before", "after")),  # gallery, rows, summary
]


@pytest.mark.parametrize(
    ("moments", "deaths"),
    [
        pytest.param(AROUND_FILES, len(AROUND_FILES), id="around every file"),
        pytest.param([f"{0.02 + 0.04 * k:.2f}" for k in range(8)], None, id="any moment", marks=pytest.mark.slow),
    ],
)
def test_killed(whole, run, digits, tmp_path, moments, deaths):
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM, tmp_path / "out", run, digits, *moments],
        env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    killed = process.stdout.splitlines().count("killed")
    assert killed == deaths if deaths is not None else killed > 0  # a fast machine may finish before the last
    same_results(tmp_path / "out", whole)
