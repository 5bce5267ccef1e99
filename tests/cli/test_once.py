"""Of the processes that torchrun has started on a machine, one tells an error that all have."""

import json

import pytest
import typer

from linfdist.cli.boundary import fail, first_to_say


@pytest.fixture
def process(tmp_path, monkeypatch):
    """Be the process with this local rank: torchrun gives each a folder, in one of the attempt."""

    def process(rank, attempt="attempt_0"):
        place = tmp_path / attempt / str(rank)
        place.mkdir(parents=True, exist_ok=True)
        monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(place / "error.json"))
        monkeypatch.setenv("MASTER_PORT", "29500")
        return place / "error.json"

    return process


def test_one_speaks_and_all_tell_torchrun(process, capsys):
    for rank in range(3):
        file = process(rank)
        assert isinstance(fail("error: no such recipe"), typer.Exit)
        told = json.loads(file.read_text())["message"]
        assert told["message"] == "error: no such recipe"
        assert int(told["extraInfo"]["timestamp"]) > 0
    assert capsys.readouterr().err == "error: no such recipe\n"


def test_other_errors_and_other_attempts_are_told(process, capsys):
    process(0)
    fail("error: lost [1]", topic="lost")
    process(1)
    fail("error: lost [2]", topic="lost")
    fail("error: the disk is full")
    process(1, "attempt_1")
    fail("error: lost [3]", topic="lost")
    assert capsys.readouterr().err.splitlines() == ["error: lost [1]", "error: the disk is full", "error: lost [3]"]


def test_without_torchrun_or_its_folder_all_speak(monkeypatch, tmp_path):
    monkeypatch.delenv("TORCHELASTIC_ERROR_FILE", raising=False)
    assert first_to_say("x")
    assert first_to_say("x")
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "gone" / "0" / "error.json"))
    assert first_to_say("x")
    assert first_to_say("x")
