"""`linfdist evaluate` as a person uses it."""

import hashlib
import os
import re
import signal
import subprocess
import sys
import time

import pytest
import torch
from PIL import Image
from torch import distributed
from typer.testing import CliRunner

from linfdist import models
from linfdist.attacks import ATTACKS
from linfdist.cli import app
from linfdist.cli.evaluate import table
from linfdist.cli.options import open_model
from linfdist.evaluation.batch import Certifiers
from linfdist.models import DistNetMLP

from .files import names, read, same_results


@pytest.fixture
def call(monkeypatch, digits):
    monkeypatch.setenv("COLUMNS", "200")
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    return lambda *arguments: CliRunner().invoke(app, ["evaluate", *map(str, arguments), "--data-dir", str(digits)])


def test_command(run, call, tmp_path):
    result = call(run, "--out", tmp_path)
    assert result.exit_code == 0, result.output
    rows, summary = read(tmp_path)
    assert len(rows) == summary["n"] == 450
    assert summary["eps"] == "0.1"  # the recipe's
    assert summary["data"] == "digits"
    assert summary["method"] == "box"
    assert summary["robust"] is None
    assert summary["attacks"] == {}
    assert summary["model_sha256"] == hashlib.sha256((run / "model.safetensors").read_bytes()).hexdigest()
    assert "digits test, eps = 0.1, 450 images" in result.output
    assert "certified (box)" in result.output
    assert f"{summary['clean']:.2f} %" in result.output
    shown = float(re.findall(r"0\.\d{4}", result.output)[-1])
    assert summary["mean_radius"] - 1e-4 < shown <= summary["mean_radius"]  # never rounded up
    again = call(run, "--out", tmp_path)
    assert again.exit_code == 0
    assert "were finished before" in again.output
    assert "certified (box)" in again.output


def test_options(run, call, tmp_path):
    model = run / "model.safetensors"
    options = ["--limit", 70, "--eps", "8/255", "--split", "train", "--method", "margin", "--batch", 30]
    result = call(model, *options, "--attack", "pgd", "--out", tmp_path / "whole")
    assert result.exit_code == 0, result.output
    rows, summary = read(tmp_path / "whole")
    assert len(rows) == summary["n"] == 70
    assert summary["split"] == "train"
    assert (summary["eps"], summary["method"], list(summary["attacks"])) == ("8/255", "margin", ["pgd"])
    for shard in ("2/2", "1/2"):
        result = call(model, *options, "--attack", "pgd,pgd", "--shard", shard, "--out", tmp_path / "shards")
        assert result.exit_code == 0, result.output
        assert ("shard 2/2 is finished, 30 images; not yet: 1/2" in result.output) == (shard == "2/2")
    same_results(tmp_path / "whole", tmp_path / "shards")


def test_the_run_folder_is_the_default(run, call):
    try:
        assert call(run, "--limit", 3).exit_code == 0
        assert {"rows.jsonl", "summary.json"} <= names(run)
        result = call(run, "--limit", 4)
        assert result.exit_code == 1
        assert "limit: 3 there, 4 now): --fresh replaces it" in result.output
        assert call(run, "--limit", 4, "--fresh").exit_code == 0
    finally:
        for name in ("rows.jsonl", "summary.json"):
            (run / name).unlink(missing_ok=True)


def test_numbers_are_rounded_to_the_safe_side():
    summary = {
        "data": "[red]x", "split": "test", "eps": "0.1", "n": 3, "clean": 100.0, "robust": 100 / 3,
        "certified": 200 / 3, "mean_radius": 0.12349, "method": "box", "attacks": {"pgd": 200 / 3, "auto": 100 / 3},
    }  # fmt: skip
    shown = table(summary)
    cells = [next(iter(column.cells)) for column in shown.columns]
    assert cells == ["100.00 %", "66.66 %", "33.34 %", "33.34 %", "66.66 %", "0.1234"]  # equal numbers equally
    headings = [column.header for column in shown.columns]
    assert headings == ["clean", "pgd", "auto", "all attacks", "certified (box)", "mean radius"]
    assert "\\[red]" in str(shown.title)  # a folder's name is no markup


def test_errors_are_told_without_a_traceback(run, call, tmp_path):
    (tmp_path / "file").write_text("")
    models.save(DistNetMLP((1, 8, 8), 10, 12, 2, [0.3], 0.3, head=4), tmp_path / "head.safetensors", {})
    (tmp_path / "garbage.safetensors").write_bytes(b"garbage")
    cases = [
        ([tmp_path / "none"], "does not exist"),
        ([tmp_path], "holds no model.safetensors"),
        ([tmp_path / "garbage.safetensors"], "not a safetensors file"),
        ([run, "--eps", "1.5"], "more than 1"),
        ([run, "--eps", "0,3"], "is not a number"),
        ([run, "--split", "val"], "split must be one of"),
        ([run, "--data", "digit"], "neither a folder of images nor one of"),
        ([run, "--out", tmp_path / "file" / "x"], "file"),
        ([run, "--attack", "pdg"], f"attack = 'pdg': must be one of none, {', '.join(ATTACKS)}"),
        ([run, "--attack", "none,pgd"], "'none' cannot be combined with other attacks"),
        ([run, "--shard", "9/8"], "shard = '9/8': the first number must be between 1 and the second"),
        ([run, "--shard", "three"], "shard = 'three': must be two whole numbers, such as 3/8"),
        ([run, "--limit", "0"], "limit = 0: must be at least 1 image"),
        ([run, "--limit", "-3"], "limit = -3: must be at least 1 image"),
        ([run, "--batch", "0"], "batch = 0: must be at least 1 image"),
        ([run, "--method", "milp"], "method = 'milp': must be one of margin, box"),
        ([tmp_path / "head.safetensors", "--eps", "0.1"], "which --data to take, and there is no recipe.json"),
        ([tmp_path / "head.safetensors", "--data", "digits"], "there is no recipe.json beside it: give --eps"),
    ]
    for arguments, complaint in cases:
        out = [] if "--out" in arguments else ["--out", tmp_path / "out"]
        result = call(*arguments, *out)
        assert result.exit_code == 1, arguments
        assert complaint in result.output
        assert isinstance(result.exception, SystemExit)
        assert not (tmp_path / "out").exists(), arguments
    result = call(run, "--limit", "many")
    assert result.exit_code == 2
    assert "--limit" in result.output


def test_a_head_is_certified_too(call, tmp_path):
    models.save(DistNetMLP((1, 8, 8), 10, 12, 2, [0.3], 0.3, head=4), tmp_path / "head.safetensors", {})
    result = call(tmp_path / "head.safetensors", "--data", "digits", "--eps", "0.001", "--limit", 50)
    assert result.exit_code == 0, result.output
    rows, summary = read(tmp_path)
    assert 0 < summary["certified"] <= summary["clean"]
    assert any(row["radius"] > 0 for row in rows)


def test_another_data_set_does_not_fit(run, call, tmp_path):
    for split in ("train", "test"):
        (tmp_path / "images" / split / "a").mkdir(parents=True)
        Image.new("L", (9, 9)).save(tmp_path / "images" / split / "a" / "0.png")
    result = call(run, "--data", tmp_path / "images", "--out", tmp_path)
    assert result.exit_code == 1
    assert "need images (B, 1, 8, 8), got (1, 1, 9, 9)" in result.output
    assert not (tmp_path / "summary.json").exists()
    assert torch.is_grad_enabled()


def test_a_contradiction_ends_with_an_error(run, call, tmp_path, monkeypatch):
    """Rows of an honest evaluation, but for one that claims too much."""
    prove = Certifiers.__call__

    def boasting(*arguments):
        proof = prove(*arguments)
        proof.radius.fill_(0.9)
        return proof

    monkeypatch.setattr(Certifiers, "__call__", boasting)
    result = call(run, "--attack", "pgd", "--eps", "0.2", "--limit", 50, "--out", tmp_path)
    assert result.exit_code == 1
    assert isinstance(result.exception, SystemExit)
    index = re.search(r"image (\d+): radius 0\.9, but pgd makes it class \d with a perturbation of 0\.", result.output)[
        1
    ]
    assert {f"violation-{index}.png", f"violation-{index}.json"} <= names(tmp_path)
    assert str(tmp_path / f"violation-{index}.png") in result.output
    assert not {"rows.jsonl", "summary.json"} & names(tmp_path)


def test_sources(run, tmp_path):
    folder, file = open_model(str(run)), open_model(str(run / "model.safetensors"))
    for source in (folder, file):
        assert source.file == run / "model.safetensors"
        assert source.folder == run
        assert source.recipe is not None
        assert (source.data(None), source.eps(None)) == ("digits", "0.1")
        assert (source.data("mnist"), source.eps("8/255")) == ("mnist", "8/255")
        assert not source.network.training
    (tmp_path / "model.safetensors").write_bytes(folder.file.read_bytes())
    with pytest.raises(ValueError, match=r"no recipe\.json beside it: give --eps"):
        open_model(str(tmp_path)).eps(None)


def start(*command):
    env = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    return subprocess.Popen(
        [sys.executable, *map(str, command)], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


PROGRAM = """
from linfdist.cli import main
from linfdist.evaluation import gallery

gallery.ROUNDS = 1
main()
"""


@pytest.mark.skipif(not distributed.is_available(), reason="torch was built without torchrun")
def test_torchrun(run, digits, call, tmp_path):
    options = ["--data-dir", digits, "--attack", "pgd", "--batch", 60]
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    (tmp_path / "program.py").write_text(PROGRAM)
    process = start(*torchrun, tmp_path / "program.py", "evaluate", run, *options, "--out", tmp_path / "two")
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert output.count("rows and summary are in") == 1
    assert output.count("is finished") == 1  # by the one that was not the last
    assert call(run, *options[2:], "--out", tmp_path / "one").exit_code == 0
    same_results(tmp_path / "one", tmp_path / "two")


def test_ctrl_c(run, digits, tmp_path):
    command = ["evaluate", run, "--data-dir", digits, "--attack", "strong", "--batch", 1, "--out", tmp_path]
    process = start("-m", "linfdist", *command)
    part, end = tmp_path / "rows.jsonl.part", time.monotonic() + 60
    while not (part.exists() and part.read_bytes().count(b"\n") > 2) and time.monotonic() < end:
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "the same command without --fresh resumes" in errors
    assert "Traceback" not in errors
    assert part.read_bytes().count(b"\n") > 2
