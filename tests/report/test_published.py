"""The published numbers, against the paper's source where it is at hand."""

import re
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest

from linfdist import data, recipes
from linfdist.eps import parse_eps
from linfdist.report.published import beside, tables

PAPER = Path(__file__).parents[3] / "shared" / "paper" / "linf-dist-nets-icml2021.tex"
LABELS = {1: "tbl_results", 2: "tbl_results_imagenet", 3: "tbl_ablation", 4: "tab:speed", 7: "tbl_identity",
          9: "tbl_results_conv"}  # fmt: skip
COLUMNS = {
    1: [("test", "robust", "certified")], 2: [("test", "robust", "certified")], 9: [("test", "robust", "certified")],
    3: [("test", "robust", "certified")] * 2, 4: [("seconds_per_epoch",)], 7: [("train", "test")] * 2,
}  # fmt: skip


def printed(number: int) -> list[list[str]]:
    """The cells of each line of a table of the paper that ends in a number, markup taken away."""
    text = PAPER.read_text(encoding="utf-8")
    found = re.search(rf"\\label{{{LABELS[number]}}}(.*?)\\end{{table", text, re.DOTALL)
    lines = []
    for line in found.group(1).split(r"\\"):
        cells = [re.sub(r"\\textbf|\\hline|[{}\s]", "", cell) for cell in line.split("&")]
        if re.fullmatch(r"\d+\.\d+", cells[-1]):
            lines.append(cells)
    return lines


@pytest.mark.skipif(not PAPER.exists(), reason="the paper's TeX source is not beside this repository")
@pytest.mark.parametrize("number", LABELS)
def test_every_digit_of_the_paper(number):
    groups, width = COLUMNS[number], len(COLUMNS[number][0])
    lines, rows = printed(number), tables()[number].rows
    assert len(lines) * len(groups) == len(rows)
    for k, group in enumerate(groups):
        stored = rows[k * len(lines) : (k + 1) * len(lines)]
        for cells, row in zip(lines, stored, strict=True):
            numbers = cells[len(cells) - width * (len(groups) - k) :][:width]
            values = [getattr(row, name, None) or row.more.get(name) for name in group]
            assert ["-" if value is None else str(value) for value in values] == numbers
            if row.flops:
                assert row.flops in cells


def test_digits_are_kept():
    assert [str(row.test) for row in tables()[1].rows if row.model == "dist_net"] == ["98.54", "87.91", "56.80"]


def test_rows_are_the_papers_own_or_cited():
    rows = [row for table in tables().values() for row in table.rows]
    assert {row.model is None for row in rows if row.cited} == {True}
    models = {recipes.load(name).model for name in recipes.names()}
    assert {row.model for row in rows if not row.cited} <= models
    assert {row.data for row in rows} <= set(data.NAMES)
    for row in rows:
        assert all(value is None or 0 < value < 100 for value in (row.test, row.robust, row.certified))
        if row.robust is not None and row.certified is not None:
            assert row.certified <= row.robust <= row.test
        assert row.eps is None or parse_eps(row.eps) > 0


def test_beside_takes_eps_exactly():
    assert [row.method for row in beside("cifar10", Fraction(8, 255))][-3:] == [
        "ℓ∞-dist Net", "ℓ∞-dist Net+MLP", "Conv ℓ∞-dist Net+MLP",
    ]  # fmt: skip
    assert beside("cifar10", Fraction(0.03137)) == []
    assert beside("digits", Fraction(1, 10)) == []
    methods = [row.method for row in beside("cifar10", Fraction(8, 255))]
    assert len(methods) == len(set(methods))  # Table 9 repeats baselines of Table 1
    assert {row.table for row in beside("tinyimagenet", Fraction(1, 255))} == {2}
    assert beside("mnist", Fraction(3, 10))[-1].certified == Decimal("93.09")
