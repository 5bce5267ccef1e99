"""Several runs on one page."""

import shutil
from fractions import Fraction

import pytest
from typer.testing import CliRunner

from linfdist.cli import app
from linfdist.eps import down, percent
from linfdist.runs.folder import Run
from linfdist.runs.rows import Counts

from .test_html import HOSTILE, Page
from .test_run import edit_rows, edit_summary

pytest.importorskip("matplotlib", reason="the extra `report` is not installed")


@pytest.fixture
def call(monkeypatch, tmp_path):
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(app, ["report", *map(str, arguments)])


@pytest.fixture
def other(run, tmp_path):
    """A copy in which the first ten certified images are not certified."""
    copy = shutil.copytree(run, tmp_path / "other")

    def spoil(rows):
        for row in [row for row in rows if row["certified"]][:10]:
            row |= {"certified": False, "radius": 0.0, "margin_radius": 0.0}

    edit_rows(copy, spoil)
    return copy


def test_two_runs_on_one_page(run, other, call, digits, tmp_path):
    result = call(run, other, "--eps", "0, 0.05", "--data-dir", digits)
    assert result.exit_code == 0, result.output
    text = (tmp_path / "comparison" / "report.html").read_text()
    assert (tmp_path / "comparison" / "certified_accuracy.png").is_file()
    assert "only run proves 10" in text
    assert "only other proves 0" in text
    assert text.count("<figcaption>") == 10
    assert "at 0.05, %" in text
    rows, eps = Run(run).rows, Fraction(1, 20)
    proved = sum(row.correct and (row.certified or (row.radius > 0 and Fraction(row.radius) >= eps)) for row in rows)
    assert f">{down(percent(proved, len(rows)), 2)}<" in text
    assert not {"script", "link", "iframe"} & set(Page(text).tags)


def test_without_the_images_there_is_a_note(run, other, call, tmp_path):
    for each in (run, other):
        edit_summary(each, data="./nowhere")
    result = call(run, other)
    assert result.exit_code == 0, result.output
    assert "are not shown" in (tmp_path / "comparison" / "report.html").read_text()


def test_other_images_are_not_compared(run, other, call, tmp_path):
    edit_summary(other, split="train")
    assert call(run, other).exit_code == 0
    text = (tmp_path / "comparison" / "report.html").read_text()
    assert "Not comparable" in text
    assert "has other images" in text


def test_names_are_told_apart_and_escaped(run, call, tmp_path):
    twin = shutil.copytree(run, tmp_path / HOSTILE.replace("/", "") / "run")
    assert call(run, twin).exit_code == 0
    text = (tmp_path / "comparison" / "report.html").read_text()
    assert "script" not in Page(text).tags
    assert f"{tmp_path.name}/run" in text


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (lambda run: [run, run], "given twice"),
        (lambda run: [run, "--eps", "0.1"], "goes with several runs"),
        (lambda run: [run, run.parent / "none"], "is not a folder"),
    ],
)
def test_bad_input_is_named(run, call, arguments, complaint):
    result = call(*arguments(run))
    assert result.exit_code == 1
    assert complaint in result.output


def test_equal_numbers_are_printed_equally():
    counted = Counts(n=3, clean=3, certified=2, surviving={"pgd": 2}, robust=2, mean_radius=None)
    assert counted.survive(2) == "66.66"
    assert counted.survive(3) == "100.00"
    assert Counts(3, 3, 1, {"pgd": 2}, 2, None).survive(2) == "66.67"
