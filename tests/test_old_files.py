"""Files that earlier versions have written still load, resume, verify and make reports: see tests/fixtures."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import linfdist as ld
from linfdist import exact
from linfdist.cli import app
from linfdist.data import read_image

OLD = Path(__file__).parent / "fixtures" / "v0.1"


def run(*arguments, code=0):
    result = CliRunner().invoke(app, [str(each) for each in arguments], catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result.output


@pytest.fixture
def copy(tmp_path):
    """A fixture folder that may be written to."""
    return lambda name: Path(shutil.copytree(OLD / name, tmp_path / name))


@pytest.mark.parametrize("name", ["plain", "headed", "compact.safetensors", "conv.safetensors"])
def test_networks_load_and_are_certified(name):
    network = ld.load(OLD / name)
    proof = ld.certify(network, torch.rand(3, *network.shape), "0.01")
    assert proof.radius.shape == (3,)


def test_rows_say_what_the_network_says_today():
    rows = [json.loads(line) for line in (OLD / "plain" / "rows.jsonl").read_text().splitlines()]
    network, images = ld.load(OLD / "plain"), ld.data.load("digits", split="test").images[:30] / 255
    proof = ld.certify(network, images, "0.1")
    assert proof.prediction.tolist() == [row["prediction"] for row in rows]
    assert proof.radius.tolist() == pytest.approx([row["radius"] for row in rows], abs=1e-4)


def test_an_evaluated_run_is_reported_and_known_to_be_finished(copy):
    folder = copy("plain")
    run("report", folder)
    assert "0.1" in (folder / "report" / "report.html").read_text()
    before = (folder / "rows.jsonl").read_bytes()
    assert "finished before" in run("evaluate", folder, "--attack", "pgd,strong", "--limit", 30)
    assert (folder / "rows.jsonl").read_bytes() == before


def test_an_unfinished_run_resumes(copy):
    folder = copy("unfinished")
    run("train", "digits-quick", "--set", "width=8", "--set", "epochs=60", "--out", folder, "--resume", "--quiet")
    assert ld.load(folder).config["width"] == 8


def test_an_unfinished_evaluation_resumes(copy):
    folder = copy("partial")
    shutil.copy(OLD / "plain" / "model.safetensors", folder)
    kept = json.loads((folder / "rows.jsonl.part").read_text().splitlines()[1])["rows"]
    run("evaluate", folder, "--attack", "pgd", "--limit", 2, "--batch", 1, code=1)  # with other settings: refused
    run("evaluate", folder, "--attack", "pgd", "--limit", 8, "--batch", 2)
    assert json.loads((folder / "rows.jsonl").read_text().splitlines()[0]) == kept[0]


@pytest.mark.parametrize("end", ["", "-head"])
def test_exact_networks_and_their_certificates(end):
    network = exact.load(OLD / f"exact{end}.safetensors")
    image = read_image(OLD / "image.png", 1)
    (certificate,) = exact.certify(network, image[None])
    assert certificate.json() == json.loads((OLD / f"certificate{end}.json").read_text())
    said = run("verify", OLD / f"certificate{end}.json", OLD / "image.png", OLD / f"exact{end}.safetensors")
    assert f"within {certificate.levels} levels" in said
