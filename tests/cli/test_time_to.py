"""`linfdist bench --time-to`: how long trainings take."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from linfdist import recipes
from linfdist.bench.time_to import by_training, of_run
from linfdist.cli import app
from linfdist.evaluate import watch

EPOCHS = [
    {"epoch": 1, "step": 10, "seconds": 60.0, "cpu_seconds": 100.0, "certified": 10.0},
    {"epoch": 2, "step": 20, "seconds": 120.0, "cpu_seconds": 220.0, "certified": 91.456},
    {"epoch": 3, "step": 30, "seconds": 180.0, "cpu_seconds": 330.0, "certified": 90.0},
]


def bench(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["bench", "--time-to", *map(str, arguments)], env={"COLUMNS": "200"})
    return result.exit_code, result.output


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
    code, output = bench(90, folder)
    assert code == 0
    assert cells(output) == ["mnist", "0.3", "5,000 held out", "2", "2.0", "3.7", "91.45 %"]  # never rounded up


def test_a_level_that_was_not_reached_is_not_claimed(folder):
    assert cells(bench(92, folder)[1])[3:] == ["2", "not in 3.0", "not in 5.5", "91.45 % (best so far)"]


def test_runs_of_earlier_versions_count_as_one_core_and_begin_at_0_when_resumed(folder):
    old = [{key: value for key, value in epoch.items() if key != "cpu_seconds"} for epoch in EPOCHS]
    old[2]["seconds"] = 30.0
    write(folder, old)
    assert [(point.minutes, point.core_minutes) for point in of_run(folder).points] == [(1, 1), (2, 2), (2.5, 2.5)]


def test_training_stops_at_the_level_and_counts_its_cores():
    recipe = recipes.override(recipes.load("digits-quick"), ["width=16", "epochs=4", "holdout=100"])
    seen = []
    course = by_training(recipe, 0.5, watch(recipe), seen.append)
    assert course.points == tuple(seen)
    assert course.points[-1].certified >= 0.5
    assert len(seen) < 4
    assert all(point.certified < 0.5 for point in seen[:-1])
    assert course.points[-1].core_minutes > 0
    assert course.images == "100 held out"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, "mnist-quick"), "more than 0 and at most 100, got 0"),
        ((101,), "more than 0 and at most 100, got 101"),
        ((90, "no-such-recipe"), "no-such-recipe"),
    ],
)
def test_bad_values_are_told(arguments, message):
    code, output = bench(*arguments)
    assert code == 2
    assert message in " ".join(output.split())


def test_a_run_without_certified_accuracies_is_told(folder):
    write(folder, [{"epoch": 1, "step": 1, "seconds": 1.0}])
    code, output = bench(90, folder)
    assert code != 0
    assert "has no certified accuracy of any epoch" in " ".join(output.split())


def test_runs_need_a_level(folder):
    result = CliRunner().invoke(app, ["bench", str(folder)])
    assert result.exit_code == 2
    assert "--time-to" in result.output
