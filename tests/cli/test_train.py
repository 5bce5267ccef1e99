import json
import os
import signal
import subprocess
import sys
import time

import pytest
from typer.testing import CliRunner

from linfdist.cli import app

SMALL = ["--set", "width=8", "--set", "batch_size=256", "--set", "epochs=2", "--quiet"]


@pytest.fixture
def run(digits, monkeypatch, tmp_path):
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(
        app, ["train", "digits-quick", "--data-dir", str(digits), *map(str, arguments)]
    )


def test_train_resume_and_train_again(run, tmp_path):
    result = run(*SMALL)
    assert result.exit_code == 0, result.output
    assert result.output.splitlines()[-2:] == [
        "finished: runs/digits-quick",
        "next: linfdist evaluate runs/digits-quick",
    ]
    assert "training images: clean" in result.output
    folder = tmp_path / "runs" / "digits-quick"
    assert {path.name for path in folder.iterdir() if path.suffix != ".lock"} == {
        "model.safetensors",
        "recipe.json",
        "metrics.jsonl",
    }
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [5, 10]
    assert all(0 <= row["certified"] <= row["clean"] <= 100 for row in rows)

    result = run(*SMALL, "--resume")
    assert result.exit_code == 0
    assert result.output.splitlines()[0] == "runs/digits-quick was finished before"
    for settings in ([], ["--set", "width=8"]):  # the run knows its own
        result = run("--quiet", "--resume", *settings)
        assert result.exit_code == 0, result.output
    result = run("--quiet", "--resume", "--set", "width=9")
    assert result.exit_code == 1
    assert "started with another recipe (width: 8 there, 9 now)" in result.output

    result = run(*SMALL)
    assert result.exit_code == 1
    assert "holds a finished run: choose another folder" in result.output


def test_a_training_that_has_learned_nothing_says_so(run):
    result = run(*SMALL, "--set", "lr=1e-12", "--set", "holdout=100")
    assert result.exit_code == 0, result.output
    (warning,) = [line for line in result.output.splitlines() if line.startswith("warning: this network has learned")]
    assert "--set threshold=0.2" in warning
    assert "held-out images: clean" in result.output


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (["--set", "widht=3"], 2, "did you mean width?"),
        (["--set", "batch_size=5000"], 1, "larger than the 1347 training images"),
        (["--set", "data=./nowhere"], 1, "neither a folder of images nor one of"),
        (["--set", "lr=1e30"], 1, "Lower the learning rate"),
        (["--out", "file/run"], 1, "Not a directory"),
    ],
)
def test_errors_are_told_without_a_traceback(run, tmp_path, arguments, code, complaint):
    (tmp_path / "file").write_text("")
    result = run("--quiet", "--set", "width=8", *arguments)
    assert result.exit_code == code, result.output
    assert complaint in result.output
    assert isinstance(result.exception, SystemExit)


def test_tensorboard_is_an_extra(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    monkeypatch.delitem(sys.modules, "torch.utils.tensorboard", raising=False)
    result = run(*SMALL, "--tensorboard")
    assert result.exit_code == 1
    assert "pip install tensorboard" in result.output


def test_ctrl_c(digits, tmp_path):
    command = [sys.executable, "-m", "linfdist", "train", "digits-quick", "--data-dir", str(digits), "--quiet"]
    command += ["--set", "width=8", "--set", "epochs=5000", "--out", str(tmp_path)]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline().startswith("epoch 1")
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "--resume continues from here" in errors
    assert "Traceback" not in errors
    assert (tmp_path / "checkpoint.safetensors").exists()
