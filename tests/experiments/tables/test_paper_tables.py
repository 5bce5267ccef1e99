"""Our numbers beside the paper's: in the right line, rounded the right way, baselines marked as cited."""

import pytest
from typer.testing import CliRunner

from linfdist.cli import app
from linfdist.eps import down, nearest, up
from linfdist.experiments.tables.layout import mean_and_deviation, paper_table
from linfdist.experiments.tables.plan import SCALES, numbers
from linfdist.runs.records import append_records


def line(comparison, row, network=None):
    return next(each for each in comparison.lines if each[0] == row and network in (None, each[1]))


def test_the_ablation(make_row):
    rows = [
        make_row(3, "cifar10-mlp-ablation-b", 0, clean=40.0, robust=30.001, certified=28.999),
        make_row(3, "cifar10-mlp-ablation-b", 1, clean=41.0, robust=30.001, certified=28.999),
        make_row(3, "cifar10-ablation-no-shift", clean=20.0, robust=10.0, certified=5.0),
    ]
    shown = paper_table(3, "laptop", rows)
    assert shown.headings == ["row", "network", "clean, paper", "clean, here", "robust, paper", "robust, here",
                              "certified, paper", "certified, here", "runs"]  # fmt: skip
    assert line(shown, "B", "ℓ∞-dist Net+MLP")[2:] == [
        "37.61", "40.50 ± 0.71", "30.99", "30.01 ± 0.00", "29.71", "28.99 ± 0.00", "2",
    ]  # fmt: skip
    assert line(shown, "B", "ℓ∞-dist Net")[2:] == ["55.63", "–", "35.28", "–", "32.56", "–", "–"]
    assert line(shown, "E without mean shift")[2:] == ["–", "20.00", "–", "10.00", "–", "5.00", "1"]
    assert all(each[-1] == "–" for each in paper_table(3, "paper", rows).lines)  # those rows are of the laptop


def test_main_results_and_baselines(make_row):
    shown = paper_table(1, "laptop", [make_row(1, "fashion-mlp", clean=80.0, robust=70.0, certified=65.0)])
    mine = [each for each in shown.lines if each[-1] != "–"]
    assert mine == [
        ["fashion", "ℓ∞-dist Net+MLP", "87.91", "80.00", "80.89", "70.00", "79.23", "65.00", "1"],
    ]  # fmt: skip
    assert ["mnist", "COLT (cited: Balunovic & Vechev, 2020)", "97.3", "–", "–", "–", "85.7", "–", "–"] in shown.lines


def test_depth_and_times(make_row):
    depth = paper_table(7, "laptop", [make_row(7, "cifar10-depth-identity-8", clean=40.0, train_clean=45.0)])
    assert line(depth, "identity map, 8 layers")[1:] == ["67.11", "45.00", "56.64", "40.00", "–", "–", "1"]
    times = paper_table(4, "laptop", [make_row(4, "cifar10", seconds_per_epoch=30.0)])
    assert line(times, "ℓ∞-dist Net")[1:] == ["19.7", "30.00", "1"]


def test_spread():
    assert mean_and_deviation([], nearest) == "–"
    assert mean_and_deviation([33.299], down) == "33.29"
    assert mean_and_deviation([26.68], down) == "26.68"  # the float lies below; what was written counts
    assert mean_and_deviation([33.291], up) == "33.30"
    assert mean_and_deviation([1.0, 2.0, 3.0], nearest) == "2.00 ± 1.00"


@pytest.fixture
def invoke(monkeypatch, tmp_path):
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(app, ["reproduce", *map(str, arguments)])


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("table", numbers())
def test_a_dry_run_of_every_table(invoke, tmp_path, table, scale):
    result = invoke(f"table{table}", "--scale", scale, "--dry-run")
    assert result.exit_code == 0, result.output
    assert f"Table {table}: " in result.output
    assert "to run" in result.output
    assert not list(tmp_path.iterdir())


def test_rows_that_are_there_need_not_be_run(invoke, tmp_path, make_row):
    row = make_row(9, "cifar10-conv-mlp", clean=40.0, robust=30.0, certified=28.0)
    append_records(tmp_path / "kept.jsonl", [row.model_dump(exclude_none=True)])
    result = invoke("table9", "--rows", "kept.jsonl")
    assert result.exit_code == 0, result.output
    assert "28.00" in result.output
    assert "1 of" not in result.output
    assert "done    cifar10-conv-mlp-seed0  width=8" in invoke("table9", "--rows", "kept.jsonl", "--dry-run").output


def test_mistakes(invoke):
    assert "'table5' is not one of table1, table2" in invoke("table5").output.replace("\n", " ")
    assert "'desk' is not one of paper, laptop" in invoke("table1", "--scale", "desk").output.replace("\n", " ")
    wrong = invoke("table1", "--only", "mnits")
    assert wrong.exit_code == 1
    assert "table 1 has no row 'mnits'; did you mean mnist" in wrong.stderr
