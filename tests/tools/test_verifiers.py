"""What outside verifiers answer is judged exactly: answers against the truth, points in rational arithmetic."""

import csv
import sys
from fractions import Fraction

import pytest

from linfdist.experiments import kit
from linfdist.experiments.kit.check import read_witness
from linfdist.experiments.kit.truth import UNIT
from tools import verifiers

pytest.importorskip("onnx")
ANSWERS = {
    "sat": "open(out, 'w').write('sat\\n((X_0 0.1)(X_1 1e-1))')",
    "unsat": "open(out, 'w').write('unsat\\n')",
    "timeout": "open(out, 'w').write('TIMEOUT\\n')",
    "error": "raise ValueError('cannot read ReduceMax')",
}


@pytest.fixture(scope="module")
def folder(digits, tmp_path_factory):
    out = tmp_path_factory.mktemp("kit") / "out"
    kit.generate(out, ["trivial"], 1, 0, digits, lambda text: None)
    return out


@pytest.fixture
def row(folder):
    with (folder / "truth.csv").open(newline="") as file:
        return next(row for row in csv.DictReader(file) if row["factor"] == "1.01")


def test_points_are_judged_exactly(folder, row):
    point = [Fraction(int(n), UNIT) for n in read_witness((folder / row["evidence"]).read_text())[0]]
    assert verifiers.judged(folder, row, point) == "counterexample"
    epsilon = Fraction(row["epsilon"])
    beside = [x if k else x + 2 * epsilon + Fraction(1, 10**11) for k, x in enumerate(point)]
    assert "after it was moved into the ball by" in verifiers.judged(folder, row, beside)
    assert verifiers.judged(folder, {**row, "label": str(1 - int(row["label"]))}, point).startswith("the label leads")
    assert verifiers.judged(folder, row, point[:-1]) == "15 of 16 pixels"


@pytest.mark.parametrize("answer", ANSWERS)
def test_every_answer_is_told_apart(folder, row, answer, monkeypatch):
    """Programs in a process of their own, as verifiers are."""
    script = f"import sys\nonnx, vnnlib, limit, out = sys.argv[1:]\n{ANSWERS[answer]}"
    monkeypatch.setitem(verifiers.VERIFIERS, "test", ("pytest", script))
    found = verifiers.run("test", sys.executable, folder, row, 5)
    assert found["answer"] == answer
    assert found.get("error") == ("ValueError: cannot read ReduceMax" if answer == "error" else None)
    assert found.get("point") == ("2 of 16 pixels" if answer == "sat" else None)


def test_a_process_that_does_not_end_is_stopped(folder, row, monkeypatch):
    monkeypatch.setitem(verifiers.VERIFIERS, "test", ("pytest", "import time\ntime.sleep(60)"))
    monkeypatch.setattr(verifiers, "START", 0.5)
    assert verifiers.run("test", sys.executable, folder, row, 0)["answer"] == "timeout"


def test_the_table_counts_contradictions():
    same = {"verifier": "v", "version": "1", "onnx": "onnx/tiny-relu.onnx", "limit": 9, "seconds": 2.0}
    rows = [
        {**same, "truth": "unsat", "answer": "unsat"},
        {**same, "truth": "unsat", "answer": "sat", "point": "the label leads by 1.0e-03"},
        {**same, "truth": "sat", "answer": "sat", "point": "counterexample"},
        {**same, "truth": "sat", "answer": "unsat"},
        {**same, "truth": "sat", "answer": "timeout"},
        {**same, "truth": "sat", "answer": "error"},
    ]
    line = verifiers.table(rows).splitlines()[-1]
    assert line == "| v 1 | relu | tiny | 1 of 2 | 1 of 4 | 1 of 1 | 1 | 0 | 1 | 2 | 2 |"


def test_the_page_shows_the_rows(tmp_path, monkeypatch):
    before = verifiers.PAGE.read_text(encoding="utf-8")
    monkeypatch.setattr(verifiers, "PAGE", tmp_path / "page.md")
    verifiers.PAGE.write_text(before, encoding="utf-8")
    verifiers.write_page()
    assert verifiers.PAGE.read_text(encoding="utf-8") == before
