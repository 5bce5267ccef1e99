"""Pages of the root, docstrings and the reference, without building the site (`make docs` does that)."""

import re

import linfdist as ld
from tools.sphinx_pages import PAGES, navigation, root_page, to_rst

from ..ops.processes import ROOT


def test_links_of_the_root_become_links_of_a_page():
    text = "[a](docs/zoo.md#x) [b](CONTRIBUTING.md) [c](LICENSE) [d](https://e.org) [e](#here) ![f](docs/images/r.png)"
    assert root_page(text) == (
        "[a](zoo.md#x) [b](contributing.md) [c](../LICENSE) [d](https://e.org) [e](#here) ![f](images/r.png)"
    )


def test_pages_of_the_root_exist():
    for page, file in PAGES.items():
        assert (ROOT / file).is_file()
        assert (ROOT / "docs" / f"{page}.md").is_file()


def test_entries_become_args():
    lines = ["Do it.", "", "x: the `value` |x|.", "    And more.", "y, z: others.", "", "Note that a_ and *b* stay."]
    assert to_rst(lines, {"x", "y", "z"}) == [
        "Do it.", "", "", "Args:", r"    x: the ``value`` \|x\|.", "        And more.", "    y, z: others.", "",
        r"Note that a\_ and \*b\* stay.", "",
    ]  # fmt: skip


def test_words_before_a_colon_are_no_entries():
    assert to_rst(["Shape: (B, M)."], {"x"}) == ["Shape: (B, M).", ""]


def test_formulas_are_shown_as_they_are():
    done = to_rst(["Distance:", "  y = max_i |x_i|", "and so on."], set())
    assert done == ["Distance:", "", "::", "", "  y = max_i |x_i|", "", "and so on.", ""]


def test_sections_and_examples_are_left_to_napoleon():
    lines = ["Do.", "", "Returns:", "    A `Box`.", "", "Example:", "    >>> f(*x)", "    3"]
    assert to_rst(lines, set()) == [
        "Do.", "", "Returns:", "    A ``Box``.", "", "Example:", "    >>> f(*x)", "    3", "",
    ]  # fmt: skip


def test_every_public_module_has_a_page_and_all_it_offers_a_docstring():
    modules = [name for name in dir(ld) if type(getattr(ld, name)).__name__ == "module"]
    assert {"attacks", "exact", "report", "training"} <= set(modules)
    for name in modules:
        module = getattr(ld, name)
        assert f"automodule:: {module.__name__}\n" in (ROOT / "docs" / "api" / f"{name}.md").read_text()
        assert module.__doc__, name
        for public in module.__all__:
            each = getattr(module, public)
            assert not callable(each) or each.__doc__, f"{name}.{public}"


def test_every_page_is_in_the_navigation_once():
    trees = navigation((ROOT / "docs" / "index.md").read_text(encoding="utf-8"))
    assert re.findall(r":caption: (.+)", trees) == ["Get started", "Guides", "Explanations", "Reference"]
    listed = re.findall(r"^([\w/-]+)$", trees, re.MULTILINE)
    assert len(set(listed)) == len(listed)
    pages = {path.relative_to(ROOT / "docs").with_suffix("").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    for_contributors = {"notebook"}
    assert for_contributors <= set((ROOT / "docs" / "contributing.md").read_text(encoding="utf-8").split())
    pages -= {page for page in pages if page.startswith("api/")} | {"index", *for_contributors}
    assert set(listed) == pages | {"api/index"}


def test_pages_are_plain_markdown_outside_comments_for_the_site():
    for path in (ROOT / "docs").rglob("*.md"):
        text = re.sub(r"^<!-- site\n.*?\n-->$", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
        assert "```{" not in text, path
        assert not text.startswith("---\n"), path
