"""The page about certificates shows what runs."""

import re

import pytest
import torch

from linfdist.certificates import METHODS

from ..ops.processes import ROOT

PAGE = (ROOT / "docs" / "certificates.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("method", METHODS)
def test_every_method_has_a_row(method):
    rows = [line.split(" | ")[0] for line in PAGE.splitlines() if line.startswith('| `"')]
    assert any(f'`"{method}"`' in row for row in rows), f"docs/certificates.md needs a row of {method}"


def test_the_examples_run_as_shown():
    codes = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    names = {}
    for code in codes:
        exec(code, names)
    proof = names["proof"]
    assert proof.radius.shape == proof.certified.shape == (5,)
    assert torch.equal(proof.prediction, names["network"](names["images"]).argmax(1))
    assert names["layers"](names["images"]).shape == (5, 10)


def test_the_networks_page_shows_what_runs(monkeypatch, tmp_path):
    code = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / "networks.md").read_text(), re.DOTALL | re.MULTILINE)
    names = {}
    monkeypatch.chdir(tmp_path)  # the page saves a network
    for block in code:
        exec(block, names)
    assert names["both"](names["images"]).shape == (5, 10)
