"""The page and the notebook show what runs; the page's tables are those of the measurements."""

import json
import re

import pytest

from tools.markdown import fill
from tools.theory import FILE, table

from ..ops.processes import ROOT, python

PAGE, NOTEBOOK = ROOT / "docs" / "theory.md", ROOT / "docs" / "tutorials" / "the-paper.md"


def test_the_page_runs_as_shown(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    for code in re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE):
        exec(code, names)
    assert names["g"].width == 4
    assert names["g"].depth == 73
    assert (tmp_path / "relu.onnx").exists()


@pytest.mark.slow  # `make docs` runs it, too
def test_the_notebook_runs_from_top_to_bottom(tmp_path):
    """All cells in one process, as the documentation runs them; pictures go nowhere. Asserts in it are tests too."""
    for needed in ("matplotlib", "highspy", "sklearn"):
        pytest.importorskip(needed)
    cells = re.findall(r"^```python\n(.*?)^```", NOTEBOOK.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert len(cells) > 20
    program = tmp_path / "notebook.py"
    program.write_text("\n".join(cells), encoding="utf-8")
    run = python(str(program), timeout=290, MPLBACKEND="agg", OMP_NUM_THREADS="1")
    assert run.returncode == 0, run.stderr


def test_the_tables_are_those_of_the_measurements():
    results = json.loads((ROOT / "results" / FILE).read_text(encoding="utf-8"))
    text = PAGE.read_text(encoding="utf-8")
    assert fill(text, table(results)) == text
