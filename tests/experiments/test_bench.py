import dataclasses
import io
import json
import math
from pathlib import Path

import pytest
import torch
from rich.console import Console
from typer.testing import CliRunner

from linfdist.cli import app
from linfdist.experiments.bench import BenchSettings, Quartiles, Report, run, suite
from linfdist.experiments.bench.races import (
    Contender,
    Convolution,
    Inputs,
    Linear,
    Race,
    broadcast,
    engine,
    take_turns,
    undisturbed,
)
from linfdist.experiments.bench.report import SCHEMA, Target, terminal
from tools.speed import markdown

TINY = BenchSettings(
    threads=1,
    seconds=0.0,
    linear=Linear(batch=6, inputs=5, outputs=7),
    few=Linear(batch=3, inputs=5, outputs=7),
    convolution=Convolution(batch=2, channels=3, size=4),
    growth_base=Linear(batch=2, inputs=3, outputs=4),
    slow_batch=3,
    compiled=False,
)


@pytest.fixture(scope="module")
def report() -> Report:
    return run(TINY)


def test_every_row_of_the_speed_table_is_measured(report):
    def measured(operation, rival, data):
        return {row.p for row in report.rows if (row.operation, row.rival, row.data) == (operation, rival, data)}

    large = {"∞", "12", "30.5", "60", "100", "300", "1000"}
    for data in suite.DATA:
        assert measured("forward", "the product", data) == {"∞"}
        assert measured("forward, batch 3", "the product", data) == {"∞"}
        assert measured("forward", "torch.cdist", data) == {"∞"}
        assert measured("training step", "the product", data) >= large
        assert measured("convolution, forward", "the linear op", data) == {"∞"}
    assert {"8", "11"} <= measured("training step", "the product", suite.AS_SPECIFIED)
    assert measured("training step", "torch.cdist", suite.AS_SPECIFIED) == {"8"}
    assert {(point.dimension, point.factor) for point in report.growth} == {(d, f) for d in "BIO" for f in (2, 4)}
    assert all(row.repetitions == 1 and row.ratio.median > 0 for row in report.rows)
    assert report.skipped == {"torch.compile": "switched off"}


def test_a_report_survives_its_file(report, tmp_path: Path):
    file = tmp_path / "results.json"
    report.write(file)
    assert json.loads(file.read_text())["schema"] == SCHEMA
    again = Report.read(file)
    again.write(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_text() == file.read_text()
    assert again.machine == report.machine
    assert [row.mark for row in again.rows] == [row.mark for row in report.rows]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["again.json", "results.json"]


def test_a_failed_write_leaves_the_old_file(report, tmp_path: Path):
    file = tmp_path / "results.json"
    file.write_text("old")
    with pytest.raises(TypeError):
        dataclasses.replace(report, settings={"not": object()}).write(file)
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


def test_another_schema_is_refused(tmp_path: Path):
    file = tmp_path / "results.json"
    file.write_text('{"schema": 0}')
    with pytest.raises(ValueError, match="not a benchmark result of schema"):
        Report.read(file)


@pytest.mark.parametrize("width", [80, 160])
def test_the_terminal_shows_all_columns(report, width):
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(terminal(report))
    text = console.export_text()
    assert "…" not in text
    assert text.count("1→1") == 2 * text.count("floor, goal") > 0


def test_the_table_of_the_readme(report):
    rows = [line for line in markdown(report).splitlines() if line.startswith("|")]
    assert len(rows) > 5
    assert len({row.count("|") for row in rows}) == 1


@pytest.mark.parametrize(
    ("target", "ratio", "mark"),
    [
        (Target(0.6, 0.8), 0.8, "goal"),
        (Target(0.6, 0.8), 0.7, "floor"),
        (Target(0.6, 0.8), 0.5, "missed"),
        (Target(8.0, 4.0), 4.0, "goal"),
        (Target(8.0, 4.0), 8.0, "floor"),
        (Target(8.0, 4.0), 8.1, "missed"),
        (Target(8.0, 4.0), math.nan, "missed"),
    ],
)
def test_marks(target, ratio, mark):
    assert target.mark(ratio) == mark


def test_quartiles():
    assert Quartiles.of([3.0]) == Quartiles(3.0, 3.0, 3.0)
    assert Quartiles.of([4.0, 0.0, 1.0, 3.0, 2.0]) == Quartiles(2.0, 1.0, 3.0)


def test_contenders_take_turns_on_the_same_fresh_inputs():
    seen: list[tuple[str, float]] = []
    drawn = iter(range(100))

    def contender(name: str, elements: int) -> Contender:
        return Contender(lambda inputs: (inputs.x,), lambda x: seen.append((name, x.item())), elements, threads=1)

    def draw() -> Inputs:
        x = torch.tensor(float(next(drawn)))
        return Inputs(x, x, x)

    race = Race(draw, {"a": contender("a", 10), "b": contender("b", 5)})
    with undisturbed():
        take_turns([race], seconds=60.0, most=3, report=lambda fraction: None)
    assert seen == [("a", 0.0), ("b", 0.0), ("b", 1.0), ("a", 1.0), ("a", 2.0), ("b", 2.0)]
    race.seconds = {"a": [1.0, 2.0], "b": [4.0, 4.0]}
    assert race.ratios("a", "b") == [0.125, 0.25]


def test_threads_are_put_back():
    before = torch.get_num_threads()
    with undisturbed():
        torch.set_num_threads(before + 1)
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("p", [math.inf, 8.0])
def test_the_rival_computes_the_same(p):
    x, w = torch.rand(6, 5), torch.randn(7, 5)
    torch.testing.assert_close(broadcast(p)(x, w), engine(p)(x, w))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--threads", "0"], "at least 1"),
        (["--threads", "100000"], "at most the number of cores"),
        (["--json", "no/such/folder/results.json"], "does not exist"),
        (["--json", "."], "it is a folder"),
    ],
)
def test_bad_input_is_refused_before_measuring(arguments, message, monkeypatch):
    monkeypatch.setattr("linfdist.experiments.bench.run", lambda *_: pytest.fail("started to measure"))
    monkeypatch.setenv("COLUMNS", "200")
    result = CliRunner().invoke(app, ["bench", *arguments])
    assert result.exit_code == 2
    assert message in result.output


def test_the_command_prints_and_writes(report, monkeypatch, tmp_path: Path):
    monkeypatch.setattr("linfdist.experiments.bench.run", lambda settings, progress: report)
    file = tmp_path / "results.json"
    result = CliRunner().invoke(app, ["bench", "--quick", "--json", str(file)])
    assert result.exit_code == 0, result.output
    assert "rate over the product" in result.output.lower()
    assert Report.read(file).date == report.date


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # torch.compile's own
def test_quick_bench(tmp_path: Path):
    file = tmp_path / "results.json"
    result = CliRunner().invoke(app, ["bench", "--quick", "--json", str(file)])
    assert result.exit_code == 0, result.output
    assert all(row.repetitions >= 1 for row in Report.read(file).rows)
