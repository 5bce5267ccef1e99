"""Killed at any moment, a run that is resumed ends with the bits of one that was not."""

import random
import sys

import pytest

from .runs import FINISHED, files, metrics, same_bits, start, tensors

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks and kills")

# Forks a run over and over, with a checkpoint at every step, each killed at another moment; then lets one finish.
PROGRAM = """
import os, pathlib, random, signal, sys, time
from linfdist import recipes
from linfdist.training import train

out, data, moments, settings = sys.argv[1], sys.argv[2], sys.argv[3].split(), sys.argv[4:]
recipe = recipes.override(recipes.load("digits-quick"), settings)
replace = os.replace

def run():
    train(recipe, pathlib.Path(out), data_dir=data, resume=True, quiet=True, checkpoint_seconds=0)

def die_at(count, when):  # before or after a file takes its name
    def dying(source, target):
        nonlocal count
        count -= 1
        if count == 0 and when == "after":
            replace(source, target)
        if count == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        replace(source, target)
    os.replace = dying

for moment in moments:
    child = os.fork()
    if not child:
        if ":" in moment:
            count, when = moment.split(":")
            die_at(int(count), when)
        run()
        os._exit(0)
    if ":" not in moment:
        time.sleep(float(moment))
        os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    print("killed" if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL else "not killed")
run()
"""


def killed(out, data, moments):
    """How often it was killed."""
    settings = ["width=12", "batch_size=128", "epochs=3"]
    process = start("-c", PROGRAM, str(out), str(data), " ".join(moments), *settings)
    output, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors
    return output.splitlines().count("killed")


def check(out, finished):
    assert files(out) == FINISHED
    assert same_bits(tensors(out), tensors(finished))
    assert metrics(out) == metrics(finished)


def test_killed_around_every_kind_of_file(finished, digits, tmp_path):
    """The renames of a fresh run: recipe.json, metrics.jsonl, then checkpoints; of a resumed one, one fewer."""
    moments = [f"{count}:{when}" for count in (1, 2, 3, 4, 8) for when in ("before", "after")]
    assert killed(tmp_path / "run", digits, moments) == len(moments)
    check(tmp_path / "run", finished)


def test_killed_around_the_last_file(finished, digits, tmp_path):
    """recipe.json, metrics.jsonl, 30 checkpoints, then the model."""
    assert killed(tmp_path / "before", digits, ["33:before"]) == 1
    check(tmp_path / "before", finished)
    assert killed(tmp_path / "after", digits, ["33:after"]) == 1
    check(tmp_path / "after", finished)


@pytest.mark.slow
def test_killed_at_random(finished, digits, tmp_path):
    draw = random.Random(0)
    moments = [f"{moment:.4f}" for moment in sorted(draw.uniform(0.0, 0.15) for _ in range(12))]  # a run may take 0.1 s
    assert killed(tmp_path / "run", digits, moments) > 0  # a fast machine may finish before the last
    check(tmp_path / "run", finished)
