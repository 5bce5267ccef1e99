"""One row per image, and the summary that is made from rows alone."""

import hashlib
import json
import re

import pytest
import torch
from typer.testing import CliRunner

from linfdist import data, models, recipes
from linfdist.certificates import margin
from linfdist.cli import app
from linfdist.eps import parse_eps
from linfdist.evaluate import evaluate, summarise, watch
from linfdist.models import DistNetMLP
from linfdist.training import train


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    pytest.importorskip("sklearn", reason="scikit-learn brings the digits")
    folder = tmp_path_factory.mktemp("data")
    data.fetch("digits", folder)
    return folder


@pytest.fixture(scope="module")
def run(digits, tmp_path_factory):
    """A small network that has learned something."""
    recipe = recipes.load("digits-quick").override({"width": 64, "epochs": 8})
    return train(recipe, tmp_path_factory.mktemp("runs") / "run", data_dir=digits, quiet=True)


@pytest.fixture
def call(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    return lambda *arguments: CliRunner().invoke(app, ["evaluate", *map(str, arguments)])


def read(folder):
    rows = [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]
    return rows, json.loads((folder / "summary.json").read_text())


def test_rows_and_summary(run, digits, tmp_path):
    network, test = models.load(run), data.load("digits", "test", digits)
    summary = evaluate(network, test, "0.1", tmp_path, run / "model.safetensors")
    rows, written = read(tmp_path)
    assert written == summary
    assert [row["index"] for row in rows] == list(range(450))
    assert [row["label"] for row in rows] == test.labels.tolist()
    proof = margin(network, test.images.float() / 255)
    assert [row["prediction"] for row in rows] == proof.prediction.tolist()
    assert [row["radius"] for row in rows] == proof.radius.tolist()  # to the last bit
    certified = proof.certified(parse_eps("0.1")) & (proof.prediction == test.labels)
    assert [row["certified"] for row in rows] == certified.tolist()
    assert 0 < summary["certified"] < summary["clean"] < 100
    for row in rows:
        assert not row["certified"] or (row["prediction"] == row["label"] and row["radius"] > 0.1)


def test_summary_by_hand():
    rows = [
        {"index": 0, "label": 1, "prediction": 1, "radius": 0.5, "certified": True},
        {"index": 1, "label": 1, "prediction": 1, "radius": 0.1, "certified": False},
        {"index": 2, "label": 1, "prediction": 0, "radius": 9.0, "certified": False},  # an error counts as 0
        {"index": 3, "label": 0, "prediction": 0, "radius": 0.0, "certified": False},
    ]
    assert summarise(rows, "8/255") == {
        "n": 4, "eps": "8/255", "clean": 75, "robust": None, "certified": 25, "mean_radius": pytest.approx(0.15),
    }  # fmt: skip


def test_command(run, digits, call, tmp_path):
    result = call(run, "--data-dir", digits, "--out", tmp_path)
    assert result.exit_code == 0, result.output
    rows, summary = read(tmp_path)
    assert len(rows) == summary["n"] == 450
    assert summary["eps"] == "0.1"  # the recipe's
    assert summary["data"] == "digits"
    assert summary["method"] == "margin"
    assert summary["robust"] is None
    assert summary["model_sha256"] == hashlib.sha256((run / "model.safetensors").read_bytes()).hexdigest()
    assert f"{summary['clean']:.2f} %" in result.output
    shown = float(re.findall(r"0\.\d{4}", result.output)[-1])
    assert summary["mean_radius"] - 1e-4 < shown <= summary["mean_radius"]  # never rounded up


def test_limit_and_eps_as_given(run, digits, call, tmp_path):
    assert (
        call(
            run / "model.safetensors", "--data-dir", digits, "--limit", 7, "--eps", "8/255", "--out", tmp_path
        ).exit_code
        == 0
    )
    rows, summary = read(tmp_path)
    assert len(rows) == summary["n"] == 7
    assert summary["eps"] == "8/255"


def test_the_run_folder_is_the_default(run, digits, call):
    assert call(run, "--data-dir", digits, "--limit", 3, "--split", "train").exit_code == 0
    assert {"rows.jsonl", "summary.json"} <= {path.name for path in run.iterdir()}


def test_radii_do_not_depend_on_the_batch(run, digits, tmp_path, monkeypatch):
    network, test = models.load(run), data.load("digits", "test", digits)
    evaluate(network, test, "0.1", tmp_path, run / "model.safetensors")
    once = (tmp_path / "rows.jsonl").read_bytes()
    monkeypatch.setattr("linfdist.evaluate.rows.BATCH", 37)
    evaluate(network, test, "0.1", tmp_path, run / "model.safetensors")
    assert (tmp_path / "rows.jsonl").read_bytes() == once


def test_watch(run, digits):
    network, test = models.load(run), data.load("digits", "test", digits)
    proof = margin(network, test.images.float() / 255)
    right = proof.prediction == test.labels
    expected = {"clean": right, "certified": right & proof.certified(parse_eps("0.1"))}
    assert watch(network, test.images, test.labels, "0.1") == {
        name: pytest.approx(100 * float(values.double().mean())) for name, values in expected.items()
    }
    head = DistNetMLP((1, 8, 8), 10, 12, 2, [0.3], 0.3, head=4).eval()
    assert watch(head, test.images, test.labels, "0.1").keys() == {"clean"}


def test_errors_are_told_without_a_traceback(run, digits, call, tmp_path):
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
        ([tmp_path / "head.safetensors"], "give --data and --eps"),
        ([tmp_path / "head.safetensors", "--data", "digits", "--eps", "0.1"], "for DistNet only"),
    ]
    for arguments, complaint in cases:
        result = call(*arguments, "--data-dir", digits)
        assert result.exit_code == 1, arguments
        assert complaint in result.output
        assert isinstance(result.exception, SystemExit)


def test_another_data_set_does_not_fit(run, call, digits, tmp_path):
    from PIL import Image

    for split in ("train", "test"):
        (tmp_path / "images" / split / "a").mkdir(parents=True)
        Image.new("L", (9, 9)).save(tmp_path / "images" / split / "a" / "0.png")
    result = call(run, "--data", tmp_path / "images", "--out", tmp_path)
    assert result.exit_code == 1
    assert "need images (B, 1, 8, 8), got (1, 1, 9, 9)" in result.output
    assert not (tmp_path / "summary.json").exists()
    assert torch.is_grad_enabled()
