"""The courses of trainings that the results page draws."""

import json
from pathlib import Path

from tools.times import main


def run(folder: Path, data: str, rows: list[tuple[float, float]]) -> Path:
    folder.mkdir()
    (folder / "recipe.json").write_text(json.dumps({"data": data, "eps": "0.3", "holdout": 5000}))
    lines = [
        {"step": k + 1, "epoch": k + 1, "seconds": 90.0 * (k + 1), "cpu_seconds": seconds, "certified": certified}
        for k, (seconds, certified) in enumerate(rows)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def test_a_run_that_starts_from_another_continues_its_time(tmp_path: Path):
    first = run(tmp_path / "a", "mnist", [(60.0, 10.0), (120.0, 50.0)])
    second = run(tmp_path / "b", "mnist", [(30.0, 40.0), (90.0, 70.5)])
    assert main(["mnist-0.3", str(first), str(second), "--results", str(tmp_path)]) == 0
    assert json.loads((tmp_path / "times" / "mnist-0.3.json").read_text()) == {
        "data": "mnist", "eps": "0.3", "images": "5,000 held out",
        "core_minutes, certified": [[1.0, 10.0], [2.0, 50.0], [2.5, 40.0], [3.5, 70.5]],
    }  # fmt: skip


def test_runs_of_two_data_sets_are_not_joined(tmp_path: Path, capsys):
    first, second = run(tmp_path / "a", "mnist", [(1.0, 1.0)]), run(tmp_path / "b", "fashion", [(1.0, 1.0)])
    assert main(["both", str(first), str(second), "--results", str(tmp_path)]) == 1
    assert capsys.readouterr().err == "error: b is of fashion at ε = 0.3, not of mnist at 0.3\n"
    assert not (tmp_path / "times").exists()
