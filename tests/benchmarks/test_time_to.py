"""`python -m benchmarks.time_to`: how long trainings take."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.time_to import of_run, terminal

from ..ops.processes import python

EPOCHS = [
    {"epoch": 1, "step": 10, "seconds": 60.0, "cpu_seconds": 100.0, "certified": 10.0},
    {"epoch": 2, "step": 20, "seconds": 120.0, "cpu_seconds": 220.0, "certified": 91.456},
    {"epoch": 3, "step": 30, "seconds": 180.0, "cpu_seconds": 330.0, "certified": 90.0},
]


def shown(folder: Path, level: float) -> str:
    console = Console(width=200, file=io.StringIO())
    console.print(terminal([of_run(folder)], level))
    return console.file.getvalue()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "mine"
    path.mkdir()
    (path / "recipe.json").write_text(json.dumps({"data": "mnist", "eps": "0.3", "holdout": 5000}))
    write(path, EPOCHS)
    return path


def write(folder: Path, epochs: list[dict[str, float]]) -> None:
    (folder / "metrics.jsonl").write_text("".join(json.dumps(epoch) + "\n" for epoch in epochs))


def cells(output: str) -> list[str]:
    return [cell.strip() for cell in output.split("mine", 1)[1].splitlines()[0].split("│")[1:-1]]


def test_the_first_epoch_that_reaches_the_level_counts(folder):
    found = cells(shown(folder, 90))
    assert found == [
        "mnist",
        "0.3",
        "5,000 held out",
        "2",
        "2.0",
        "3.7",
        "91.45 %",
    ]  # never rounded up


def test_a_level_that_was_not_reached_is_not_claimed(folder):
    assert cells(shown(folder, 92))[3:] == ["2", "not in 3.0", "not in 5.5", "91.45 % (best so far)"]


def test_a_run_without_certified_accuracies_is_refused(folder):
    write(folder, [{"epoch": 1, "step": 1, "seconds": 1.0}])
    with pytest.raises(ValueError, match="has no certified accuracy of any epoch"):
        of_run(folder)


def test_a_level_that_is_no_percentage_is_refused(folder):
    result = python("-m", "benchmarks.time_to", "101", str(folder))
    assert result.returncode == 2
    assert "more than 0 and at most 100, got 101" in result.stderr
