"""What the README shows runs as shown."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from .ops.processes import ROOT, python

README = (ROOT / "README.md").read_text()
# They would run this suite, or set up and train; CI runs them as they are.
LEFT_OUT = {"make demo", "make test", "linfdist train mnist-quick", "linfdist evaluate runs/mnist-quick"}
# As shown, but into a folder of its own, and without minutes of measuring.
REPLACED = {
    "pip install .": "{python} -m pip install --no-deps --no-build-isolation --quiet --target {folder} .",
    "linfdist bench": "linfdist bench --quick",
}


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


def commands() -> list[str]:
    lines = [line.split("#")[0].strip() for block in blocks("console") for line in block.splitlines()]
    return [line for line in lines if line and line not in LEFT_OUT]


def test_there_is_something_to_test():
    assert blocks("python")
    assert {"pip install .", "linfdist info", "linfdist bench"} <= set(commands())


@pytest.mark.parametrize("code", blocks("python"), ids=lambda code: code.strip().splitlines()[-1])
def test_python(code):
    run = python("-c", code)
    assert run.returncode == 0, run.stderr


def run_command(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = REPLACED.get(command, command).format(python=shlex.quote(sys.executable), folder=shlex.quote(str(folder)))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        shlex.split(command), cwd=ROOT, env={**os.environ, "PATH": path},
        capture_output=True, text=True, timeout=290, check=False,
    )  # fmt: skip


def test_train_and_evaluate_small(tmp_path):
    """The README's two commands on digits, since MNIST takes minutes."""
    train = run_command(f"linfdist train digits-quick --set width=16 --set epochs=1 --out {tmp_path}/run", tmp_path)
    assert train.returncode == 0, train.stdout + train.stderr
    evaluate = run_command(f"linfdist evaluate {tmp_path}/run", tmp_path)
    assert evaluate.returncode == 0, evaluate.stdout + evaluate.stderr


@pytest.mark.parametrize("command", [c for c in commands() if c not in REPLACED])
def test_command(command, tmp_path):
    run = run_command(command, tmp_path)
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.slow
@pytest.mark.parametrize("command", [c for c in commands() if c in REPLACED])
def test_command_that_takes_long(command, tmp_path):
    run = run_command(command, tmp_path)
    assert run.returncode == 0, run.stdout + run.stderr
