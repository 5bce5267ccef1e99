"""The tutorials run, and their pages show what their code prints."""

import pytest

from tools.tutorials import FOLDER, blocks, code_hash, is_current, main, with_outputs

NAMES = sorted(path.stem for path in FOLDER.glob("*.md"))
PAGE = """# Page

```python
import matplotlib.pyplot as plt

print("one")
[2, 3]
```

Some text.

```python
_ = plt.plot([1, 2])
```

```python
x = 1
```

```console
linfdist info
```
"""


def test_outputs_and_pictures_stand_below_their_code(tmp_path):
    pytest.importorskip("matplotlib.pyplot").figure()  # left open by somebody else
    shown = with_outputs("page", PAGE, tmp_path / "images")
    assert "[2, 3]\n```\n\n<!-- output -->\n```text\none\n[2, 3]\n```\n<!-- end of output -->\n\nSome text." in shown
    assert "![What this code draws](images/page-1.png)\n<!-- end of output -->" in shown
    assert (tmp_path / "images" / "page-1.png").read_bytes().startswith(b"\x89PNG")
    assert shown.count("<!-- output -->") == 2
    assert is_current(shown)
    assert with_outputs("page", shown, tmp_path / "images") == shown


def test_the_middle_of_a_long_output_is_left_out(tmp_path):
    shown = with_outputs("page", "```python\nfor k in range(100):\n    print(k)\n```\n", tmp_path)
    assert "\n11\n…\n92\n" in shown


def test_code_that_has_changed_is_noticed(tmp_path):
    pytest.importorskip("matplotlib")
    shown = with_outputs("page", PAGE, tmp_path / "images")
    assert is_current(shown.replace("Some text.", "Another text."))
    assert not is_current(shown.replace("x = 1", "x = 2"))
    assert not is_current(PAGE)
    assert code_hash(shown) == code_hash(PAGE)


def test_a_tutorial_that_fails_says_so(tmp_path):
    with pytest.raises(ZeroDivisionError):
        with_outputs("page", "```python\n1 / 0\n```\n", tmp_path)


@pytest.mark.parametrize("name", NAMES)
def test_the_committed_outputs_are_those_of_the_code(name):
    """If this fails: python -m tools.tutorials"""
    text = (FOLDER / f"{name}.md").read_text(encoding="utf-8")
    assert blocks(text)
    assert is_current(text)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", NAMES)
def test_it_runs_from_top_to_bottom(name, tmp_path):
    for needed in ("matplotlib", "highspy", "sklearn"):
        pytest.importorskip(needed)
    assert main([name, "--all", "--out", str(tmp_path)]) == 0
    assert is_current((tmp_path / f"{name}.md").read_text(encoding="utf-8"))
