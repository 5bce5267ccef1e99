"""Rows beside published numbers: in the right line, rounded the right way; and what is drawn of them."""

import pytest

from linfdist.experiments.tables.layout import (
    accuracy_table,
    cost_table,
    front_table,
    panels,
    paper_table,
    searched_how,
    searches,
    stated,
)
from linfdist.experiments.tables.rows import CompareRow, read_compare_rows
from linfdist.report import plots
from linfdist.report.charts import compared_chart, fronts_chart
from linfdist.runs.records import append_records
from tools import compared


def test_of_two_recipes_of_ours_the_last_one_counts(make_compare_row):
    old, other, new = make_compare_row("dist", recipe="1"), make_compare_row(), make_compare_row("dist", recipe="2")
    assert [panel.rows for panel in panels([old, other, new])] == [[new, other]]
    assert [panel.rows for panel in panels([old, other, new])] == [[new, other]]


def test_the_tables(make_compare_row):
    rows = [make_compare_row(), make_compare_row("dist", "ℓ∞-dist Net", certified=90.0, strongest=91.0, memory_mb=None)]
    shown = accuracy_table(rows)
    assert shown.title == "mnist, ε = 0.3, 20m for each: percent of 1,000 test images"
    assert shown.lines == [
        ["ℓ∞-dist Net", "90.00", "92.64", "97.00", "98.54", "90.01", "91.00"],
        ["IBP", "85.99", "91.79", "97.00", "97.88", "90.01", "89.00"],
    ]
    assert cost_table(rows).lines[1] == ["IBP", "890.1", "10.5", "84.77", "700", "1.50", "lr=0.002"]
    assert cost_table(rows).lines[0][4] == "–"
    assert stated(rows) == (
        "20m of training for each, 2 settings tried on held-out images; seed 0; an abacus, 2 threads; 2026-11-17."
    )
    assert len(panels([*rows, make_compare_row(seed=1), make_compare_row(n=50)])) == 3


def test_tables_of_the_paper_show_the_row_of_the_largest_budget(make_compare_row):
    rows = [
        make_compare_row(budget=60.0, certified=1.0),
        make_compare_row(),
        make_compare_row(seed=1, certified=80.999),
        make_compare_row(n=50),
    ]
    rows += [
        make_compare_row(data="cifar10", eps="8/255", seconds_per_epoch=77.0),
        make_compare_row(title="ℓ∞-dist Net"),
    ]
    rows += [make_compare_row(data="fashion", eps="0.2")]  # another question than the paper's
    lines = paper_table(1, "laptop", [], rows).lines
    ibp = next(line for line in lines if line[:2] == ["mnist", "IBP (cited: Gowal et al., 2018)"])
    assert ibp[2:] == ["97.88", "97.00 ± 0.00", "93.22", "90.01 ± 0.00", "91.79", "83.49 ± 3.54", "2"]
    assert [line[:2] for line in lines if line[-1] != "–"] == [
        ["mnist", "IBP (cited: Gowal et al., 2018)"], ["cifar10", "IBP (cited: Gowal et al., 2018)"],
    ]  # fmt: skip
    assert all(line[-1] == "–" for line in paper_table(1, "paper", [], rows).lines)
    times = [line for line in paper_table(4, "laptop", [], rows).lines if line[-1] != "–"]
    assert [line[1:] for line in times] == [["17.4", "77.00", "1"]]
    convolutional = [line for line in paper_table(9, "laptop", [], rows).lines if line[-1] != "–"]
    assert convolutional == [
        ["IBP (cited: Gowal et al., 2018)", "50.99", "97.00", "31.27", "90.01", "29.19", "85.99", "1"],
    ]  # fmt: skip


def test_rows_are_strict(make_compare_row, tmp_path):
    path = tmp_path / "rows.jsonl"
    append_records(path, [make_compare_row().model_dump(exclude_none=True)])
    assert read_compare_rows(path) == [make_compare_row()]
    append_records(path, [make_compare_row().model_dump() | {"certified": "90"}])
    with pytest.raises(ValueError, match=r"line 2 is no result: certified: "):
        read_compare_rows(path)
    assert make_compare_row(trials=[]).led is None
    assert CompareRow.model_validate_json(make_compare_row(trials=[]).model_dump_json()).tried == 1


def test_the_page_and_its_picture(make_compare_row, tmp_path):
    (tmp_path / "docs").mkdir()
    page = "a\n<!-- begin: compare -->\n{}<!-- end: compare -->\nb\n"
    page += "".join(f"<!-- begin: {name} -->\n<!-- end: {name} -->\n" for name in ("ctrain", "fronts", "searched"))
    (tmp_path / "docs" / "compare.md").write_text(page.format("old\n"))
    assert compared.page(tmp_path, []) == page.format("")
    assert compared.pictures([]) == {}
    text = compared.page(tmp_path, [make_compare_row()])
    assert "| IBP | 85.99 | 91.79 | 97.00 | 97.88 | 90.01 | 89.00 |" in text
    assert "](images/compare.png)" not in text  # one method alone is a row of a table, and no picture
    assert compared.pictures([make_compare_row()]) == {}
    assert "](images/compare.png)" in compared.page(tmp_path, [make_compare_row(), make_compare_row("cap", "CAP")])
    text = compared.page(
        tmp_path, [make_compare_row(), make_compare_row(budget=60.0, certified=10.0)]
    )  # one table for both
    assert "**mnist, ε = 0.3.** Training time as stated, 2 settings tried" in text
    assert text.index("| IBP, 20m | 85.99 |") < text.index("| IBP, 1m | 10.00 |")
    rows = [
        make_compare_row(),
        make_compare_row("natural", "Natural training", certified=0.0, trials=[]),
        make_compare_row("dist", "ℓ∞-dist"),
    ]
    drawn = compared_chart([("one", rows), ("two", rows[:1])])
    assert drawn.light.startswith(b"\x89PNG")
    assert drawn.light != drawn.dark
    axes = plots.compared([make_compare_row(seconds=241.0, trials=[]), make_compare_row(seconds=304.0, trials=[])])
    first, last = axes.get_xlim()
    assert {200, 500} <= {tick for tick in axes.get_xticks() if first < tick < last}  # a decade alone would have none
    with pytest.raises(ValueError, match="nothing to draw"):
        compared_chart([("one", [])])


def test_a_picture_joins_the_budgets_of_a_method(make_compare_row):
    short, long = make_compare_row(budget=60.0, seconds=45.0, trials=[]), make_compare_row(trials=[])
    rows = [long, make_compare_row("cap", "CAP", trials=[], certified=10.0), short]
    others = [
        make_compare_row(shared="89abcdef", trials=[]),
        make_compare_row(n=50),
        make_compare_row(data="cifar10", eps="8/255"),
    ]
    others += [make_compare_row(seed=1, trials=[]), make_compare_row()]
    found = panels([*rows, *others])  # rows that differ in more than the budget are in panels of their own
    assert found[0] == ("mnist, ε = 0.3, 1,000 test images", rows)
    assert [panel.rows for panel in found[1:]] == [[row] for row in others]
    assert [panel.title for panel in found[2:4]] == [
        "mnist, ε = 0.3, 50 test images", "cifar10, ε = 8/255, 1,000 test images",
    ]  # fmt: skip
    courses = [line for line in plots.compared(rows).get_lines() if line.get_linestyle() == "-"]
    assert sorted(list(line.get_xdata()) for line in courses) == [[45.0, 890.1], [890.1]]


def test_fronts_on_the_page_and_in_the_picture(make_tune_row, tmp_path):
    ours = [
        make_tune_row("dist", "ℓ∞-dist Net", setting={"threshold": "2.5 eps"}, clean=clean, certified=certified)
        for clean, certified in [(95.0, 80.0), (97.0, 75.0), (94.0, 79.0), (20.0, 1.0)]
    ]
    rows = [make_tune_row(setting={"kappa": [1.0, 0.5]}), *ours, make_tune_row(clean=96.0, certified=60.0)]
    shown = front_table(rows)
    assert shown.title == "mnist, ε = 0.3, 1,000 held-out images: settings that no other one of the method beats"
    assert shown.lines == [
        ["IBP", "lr=0.001", "", "60.00", "96.00", "80.01", "3.2"],
        ["IBP", "kappa=1→0.5", "", "70.99", "90.00", "80.01", "3.2"],
        ["ℓ∞-dist Net", "threshold=2.5 eps", "●", "75.00", "97.00", "80.01", "3.2"],
        ["ℓ∞-dist Net", "threshold=2.5 eps", "●", "80.00", "95.00", "80.01", "3.2"],
    ]
    assert searched_how(rows) == (
        "2 to 4 trials per method, 1.25m of training each; seed 0; an abacus, 1 thread; 2026-11-19."
    )
    other = make_tune_row(data="fashion", eps="0.1")
    assert [few for _, few in searches([*rows, other])] == [rows, [other]]
    axes = plots.fronts(rows)
    ibp, _, steps, marks = axes.get_lines()
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["IBP", "ℓ∞-dist Net"]
    left, bottom = axes.get_xlim()[0], axes.get_ylim()[0]
    assert (steps.get_xydata().tolist(), steps.get_drawstyle()) == (
        [[97.0, bottom], [97.0, 75.0], [95.0, 80.0], [left, 80.0]], "steps-post",
    )  # fmt: skip
    assert marks.get_xydata().tolist() == [[97.0, 75.0], [95.0, 80.0]]
    assert steps.get_linewidth() > ibp.get_linewidth()
    assert 60 < left < 90  # the trial at 20 % is left out
    assert plots.front(ours) == ours[1::-1]
    drawn = fronts_chart(searches(rows))
    assert drawn.light.startswith(b"\x89PNG")
    assert drawn.light != drawn.dark
    with pytest.raises(ValueError, match="nothing to draw"):
        plots.fronts([])
    (tmp_path / "docs").mkdir()
    names = ("compare", "fronts", "searched", "ctrain")
    markers = "".join(f"<!-- begin: {name} -->\n<!-- end: {name} -->\n" for name in names)
    (tmp_path / "docs" / "compare.md").write_text(markers)
    text = compared.page(tmp_path, [], [], [*rows, other])
    assert "](images/fronts-dark.png)" in text
    assert "**fashion, ε = 0.1, 1,000 held-out images.** 1 trial per method" in text
    assert "| SABR | `share` 0.1 to 1; `reach` 0.6 to 1.5; `lr` 0.0003 to 0.005 |" in text
    assert set(compared.pictures([], rows)) == {"fronts", "fronts-dark"}
