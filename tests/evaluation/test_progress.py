"""A bar with the rate on a terminal; elsewhere nothing."""

import re

import pytest

from linfdist.evaluation.progress import Bar, busy


@pytest.mark.parametrize(("terminal", "show"), [(True, True), (True, False), (False, True)])
def test_bar(capsys, monkeypatch, terminal, show):
    monkeypatch.setenv("COLUMNS", "150")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    if terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")
    else:
        monkeypatch.delenv("FORCE_COLOR", raising=False)
    with Bar("evaluating digits", 150, 40, show) as bar:
        bar.advance(30)
    with busy("searching", show):
        pass
    output, errors = capsys.readouterr()
    assert output == ""
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", errors)
    if terminal and show:
        assert "evaluating digits" in text
        assert "70/150 images" in text
        assert re.search(r"[0-9] img/s", text)
        assert "searching" in text
    else:
        assert text == ""
