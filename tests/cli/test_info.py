import os
import subprocess
import sys

import pytest
import torch
from typer.testing import CliRunner

import linfdist as ld
from linfdist.cli import app


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("LINFDIST_BACKEND", raising=False)
    monkeypatch.delenv("LINFDIST_ISA", raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    return lambda *arguments, **env: CliRunner().invoke(app, list(arguments), env=env)


def test_info_shows_versions_and_every_backend(run):
    result = run("info")
    assert result.exit_code == 0
    assert ld.__version__ in result.output
    assert torch.__version__ in result.output
    for status in ld.backends():
        assert status.name in result.output
        assert (status.detail if status.available else status.reasons[0][:40]) in result.output


def test_info_shows_overrides_in_force(run):
    output = run("info", LINFDIST_BACKEND="reference").output
    lines = {line.split()[0]: line for line in output.splitlines() if line.strip()}
    assert "reference" in lines["LINFDIST_BACKEND"]
    assert "not set" in lines["LINFDIST_ISA"]
    assert "reference" in lines["in"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["LINFDIST_BACKEND", "LINFDIST_ISA"])
def test_info_says_when_an_override_cannot_be_honoured(name):
    if name == "LINFDIST_ISA" and not ld.backends()[0].available:
        pytest.skip("needs the native backend")
    clean = {key: value for key, value in os.environ.items() if not key.startswith("LINFDIST_")}
    env = {**clean, name: "abacus", "COLUMNS": "200"}  # a process of its own: the choice is made once
    result = subprocess.run([sys.executable, "-m", "linfdist", "info"], env=env, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert f"none: {name}=abacus" in result.stdout


def test_bench_refuses_an_override_that_cannot_be_honoured(run):
    result = run("bench", LINFDIST_BACKEND="abacus")
    assert result.exit_code == 1
    assert "no backend can run: LINFDIST_BACKEND=abacus" in result.stderr


def test_no_arguments_show_the_verbs(run):
    output = run().output
    assert "info" in output
    assert "bench" in output
