"""`linfdist report --assurance`: what was assessed, from the files of the run and from nothing else."""

import hashlib
import json
import shutil

import pytest
import torch
from typer.testing import CliRunner

import linfdist as ld
from linfdist.cli import app
from linfdist.report import write_assurance
from linfdist.report.assurance import FORMAT

from .test_html import HOSTILE, Page
from .test_run import edit_summary


def call(*arguments):
    result = CliRunner().invoke(app, ["report", "--assurance", *map(str, arguments)])
    assert result.exit_code == 0, result.output
    return result


def written(folder):
    return json.loads((folder / "assurance.json").read_text())


def test_it_says_what_the_files_of_the_run_say(run, tmp_path):
    call(run, "--out", tmp_path / "out")
    found, summary = written(tmp_path / "out"), json.loads((run / "summary.json").read_text())
    rows = [json.loads(line) for line in (run / "rows.jsonl").read_text().splitlines()]
    assert found["format"] == FORMAT
    assert found["system"]["model_sha256"] == hashlib.sha256((run / "model.safetensors").read_bytes()).hexdigest()
    assert found["system"]["training"]["name"] == "digits-quick"
    assert found["domain"]["eps"] == summary["eps"]
    criterion = found["criterion"]
    assert criterion["met"] == sum(row["certified"] for row in rows)
    assert criterion["met"] + criterion["undecided"] + criterion["not_met"] == criterion["images"] == len(rows)
    assert criterion["not_met"] == sum(row["prediction"] != row["label"] for row in rows)  # no attack was run
    assert found["arithmetic"]["computed_in"] == "float32"
    assert found["method"]["name"] == summary["method"]
    assert found["data"]["sha256"] == summary["data_sha256"]
    assert found["hashes"]["rows.jsonl"] == hashlib.sha256((run / "rows.jsonl").read_bytes()).hexdigest()
    assert found["hashes"]["recipe.json"] == hashlib.sha256((run / "recipe.json").read_bytes()).hexdigest()
    assert found["proved_by_machine"] == []
    assert found["proved_on_paper"]


def test_the_same_run_gives_the_same_bytes(run, tmp_path):
    for name in ("one", "other"):
        call(run, "--out", tmp_path / name)
    for name in ("assurance.json", "assurance.html"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "other" / name).read_bytes()


def test_what_is_not_known_is_null(run):
    """Without the network, or with another one, nothing is said of its arithmetic."""
    (run / "recipe.json").unlink()
    network = ld.models.DistNet((1, 8, 8), 10, 8, 2, [0.3], 0.3)
    ld.save(network, run / "model.safetensors")
    edit_summary(run, model=str(run))
    call(run)
    found = written(run / "report")
    assert found["system"]["network"] is found["system"]["training"] is None
    assert found["arithmetic"]["computed_in"] is found["proved_on_paper"] is found["hashes"]["recipe.json"] is None
    assert found["proved_by_machine"] == []


def test_of_an_exact_network_it_names_the_theorems(run, digits, tmp_path):
    exact = ld.exact.freeze(ld.load(run))
    file, out = tmp_path / "exact.safetensors", tmp_path / "out"
    ld.save(exact, file)
    test = ld.data.load("digits", "test", digits)
    ld.evaluate(ld.load(file), test, "10/255", out, file, model=str(file), limit=20)
    call(out)
    found = written(out / "report")
    assert found["arithmetic"]["computed_in"] == "integers"
    assert any("check_sound" in line for line in found["proved_by_machine"])
    assert found["proved_on_paper"] == []
    assert found["checked_by_proved_checker"] is None


def test_of_a_network_of_the_zoo_the_card_says_how_it_was_trained(tmp_path):
    file = ld.zoo.file("mnist-0.3")
    images, labels = torch.rand(3, 1, 28, 28), torch.tensor([0, 1, 2])
    ld.evaluate(ld.load("mnist-0.3"), (images, labels), "0.01", tmp_path, file, model="mnist-0.3")
    call(tmp_path)
    found, card = written(tmp_path / "report"), ld.zoo.card("mnist-0.3")
    assert found["system"]["training"]["name"] == card.recipe["name"]
    assert found["system"]["model_sha256"] == card.sha256
    assert "recipe" not in found["system"]["network"]
    assert found["hashes"]["recipe.json"] is None


def test_the_page_is_escaped_and_has_every_entry(run):
    edit_summary(run, data=HOSTILE)
    _, path = write_assurance(run)
    text = path.read_text()
    assert HOSTILE not in text
    assert "script" not in Page(text).tags
    for name in written(run / "report"):
        assert name.replace("_", " ").capitalize() in text


@pytest.mark.parametrize("name", ["rows.jsonl", "summary.json"])
def test_damaged_files_are_refused(run, name):
    (run / name).write_bytes((run / name).read_bytes().replace(b"1", b"2", 1))
    with pytest.raises(ValueError, match=r"damaged|changed"):
        write_assurance(run)
    assert not (run / "report").exists()


def test_several_runs_are_refused(run, tmp_path):
    other = shutil.copytree(run, tmp_path / "other")
    result = CliRunner().invoke(app, ["report", "--assurance", str(run), str(other)])
    assert isinstance(result.exception, ValueError) or "speaks of one run" in result.output
