"""What the README shows runs as shown, in one fresh folder, in its order."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .ops.processes import ROOT, python

README = (ROOT / "README.md").read_text()
# They would run this suite, or set up, fetch and train; CI runs them as they are.
LEFT_OUT = {"make demo", "make test"}
INSTALL = "pip install ."
INSTALL_ASIDE = "{python} -m pip install --no-deps --no-build-isolation --quiet --target {folder} ."
# What the fast test appends, so that minutes become seconds.
SHORTER = {
    "linfdist train mnist-quick": "--set width=32 --set per_class=1 --set epochs=0.5",
    "linfdist evaluate runs/mnist-quick --attack pgd,strong": "--limit 5",
    "linfdist evaluate runs/mnist-0.3/exact.safetensors --attack pgd": "--limit 5",
}
SHOWN = ["docs/images/seven.png"]  # what commands name of the clone they are run from


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


def commands() -> list[str]:
    lines = [re.split(r"\s#", line)[0].strip() for block in blocks("console") for line in block.splitlines()]
    return [line for line in lines if line and line not in LEFT_OUT]


def run(command: str, folder: Path) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", command], cwd=folder, env={**os.environ, "PATH": path},
        capture_output=True, text=True, timeout=3000, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture
def fresh(tmp_path):
    for name in SHOWN:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def test_there_is_something_to_test():
    assert blocks("python")
    assert {INSTALL, *SHORTER, "linfdist zoo list", "linfdist recipes list"} <= set(commands())


@pytest.mark.parametrize("code", blocks("python"), ids=lambda code: code.strip().splitlines()[-1])
def test_python(code):
    done = python("-c", code)
    assert done.returncode == 0, done.stderr
    if "print(" in code:
        assert done.stdout in blocks("text")


def test_commands_one_after_the_other(fresh):
    """With a training and evaluations of seconds; the next test runs them to the letter."""
    shown = [command for command in commands() if command != INSTALL]
    said = {command: run(f"{command} {SHORTER.get(command, '')}", fresh) for command in shown}
    assert (fresh / "runs" / "mnist-quick" / "report" / "report.html").stat().st_size > 10_000
    assert "verified" in next(said[command] for command in shown if command.startswith("linfdist verify"))


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_commands_to_the_letter(fresh):
    for command in commands():
        if command != INSTALL:
            run(command, fresh)


@pytest.mark.slow
def test_install(tmp_path):
    run(INSTALL_ASIDE.format(python=shlex.quote(sys.executable), folder=shlex.quote(str(tmp_path))), ROOT)
