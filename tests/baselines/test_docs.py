"""The page about other methods shows what runs."""

import re

from linfdist.baselines import SIZES, TRAINING_METHODS
from linfdist.certificates import METHODS

from ..ops.processes import ROOT

PAGE = (ROOT / "docs" / "compare.md").read_text(encoding="utf-8")


def test_the_page_runs_as_shown(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    for code in re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE):
        exec(code, names)
    assert names["claim"].claimed.shape == (4,)
    assert names["ibp"].certified.sum() > 30
    assert names["crown"].certified.sum() >= names["ibp"].certified.sum()
    assert (tmp_path / "ibp.safetensors").exists()


def test_the_page_names_all_sizes_methods_and_bounds():
    for name in (*SIZES, *TRAINING_METHODS):
        assert f"| `{name}` |" in PAGE
    for name in METHODS:
        assert name == "milp" or f'| `"{name}"` |' in PAGE
