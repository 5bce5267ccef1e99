"""The page shows what runs; its tables are those of the measurements."""

import json
import re

from tools.markdown import fill
from tools.theory import FILE, table

from ..ops.processes import ROOT

PAGE = ROOT / "docs" / "theory.md"


def test_the_page_runs_as_shown(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    for code in re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE):
        exec(code, names)
    assert names["g"].width == 4
    assert names["g"].depth == 73
    assert (tmp_path / "relu.onnx").exists()


def test_the_tables_are_those_of_the_measurements():
    results = json.loads((ROOT / "results" / FILE).read_text(encoding="utf-8"))
    text = PAGE.read_text(encoding="utf-8")
    assert fill(text, table(results)) == text
