"""What the README shows runs as shown."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner

from linfdist import data
from linfdist.cli import app

from .ops.processes import ROOT, python

README = (ROOT / "README.md").read_text()
# They would run this suite, or set up and train; CI runs them as they are.
LEFT_OUT = {
    "make demo",
    "make test",
    "linfdist train mnist-quick",
    "linfdist evaluate runs/mnist-quick --attack pgd,strong",
    "linfdist report runs/mnist-quick",
    "linfdist certify runs/mnist-quick seven.png",
    "linfdist export mnist-0.3 --format exact",
    "linfdist certify --exact runs/mnist-0.3/exact.safetensors seven.png > seven.json",
    "linfdist verify seven.json seven.png runs/mnist-0.3/exact.safetensors",
    "linfdist evaluate runs/mnist-0.3/exact.safetensors --attack pgd",
    "linfdist demo --no-open",  # tests/page
}
# As shown, but into a folder of its own, and without minutes of measuring.
REPLACED = {
    "pip install .": "{python} -m pip install --no-deps --no-build-isolation --quiet --target {folder} .",
}


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


def commands() -> list[str]:
    lines = [line.split("#")[0].strip() for block in blocks("console") for line in block.splitlines()]
    return [line for line in lines if line and line not in LEFT_OUT]


def test_there_is_something_to_test():
    assert blocks("python")
    assert {"pip install .", "linfdist zoo list", "linfdist recipes list"} <= set(commands())


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


def test_from_training_to_a_verified_certificate(tmp_path):
    """The README's commands one after the other, on digits, since MNIST takes minutes."""
    Image.fromarray(data.load("digits", split="test").images[0, 0].numpy()).save(tmp_path / "seven.png")

    def run(command: str) -> str:
        words = shlex.split(command.replace("RUN", f"{tmp_path}/run").replace("seven", f"{tmp_path}/seven"))
        done = CliRunner().invoke(app, words[1:])
        assert done.exit_code == 0, done.output
        return done.stdout

    run("linfdist train digits-quick --set width=16 --set epochs=1 --out RUN")
    run("linfdist evaluate RUN --attack pgd,strong --limit 40")
    run("linfdist report RUN")
    assert (tmp_path / "run" / "report" / "report.html").stat().st_size > 10_000
    assert "seven.png" in run("linfdist certify RUN seven.png")
    run("linfdist export RUN --format exact --out RUN/exact.safetensors")
    (tmp_path / "seven.json").write_text(run("linfdist certify --exact RUN/exact.safetensors seven.png"))
    run("linfdist verify seven.json seven.png RUN/exact.safetensors")
    run("linfdist evaluate RUN/exact.safetensors --attack pgd --limit 20")


@pytest.mark.parametrize("command", [c for c in commands() if c not in REPLACED])
def test_command(command, tmp_path):
    run = run_command(command, tmp_path)
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.slow
@pytest.mark.parametrize("command", [c for c in commands() if c in REPLACED])
def test_command_that_takes_long(command, tmp_path):
    run = run_command(command, tmp_path)
    assert run.returncode == 0, run.stdout + run.stderr
