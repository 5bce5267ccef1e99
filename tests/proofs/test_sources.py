"""The proofs as they are written: these tests need no Coq. `make prove` is what checks the proofs."""

import re

import pytest

from ..ops.processes import ROOT

PROOFS = ROOT / "proofs"
FILES = sorted(PROOFS.glob("*.v"))
PAGE = ROOT / "docs" / "proofs.md"


def code(text: str) -> str:
    """Coq without its comments."""
    depth, kept = 0, []
    for part in re.split(r"(\(\*|\*\))", text):
        depth += {"(*": 1, "*)": -1}.get(part, 0)
        if depth == 0 and part != "*)":
            kept.append(part)
    return "".join(kept)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_nothing_is_left_unproved(file):
    """`make prove` finds axioms by Print Assumptions; this finds them where there is no Coq."""
    unproved = r"\b(Admitted|admit|give_up|Abort|Axioms?|Conjecture|Parameters?|Variables? .*:.*\.$|Unset .*Checking)\b"
    assert not re.search(unproved, code(file.read_text(encoding="utf-8")), re.MULTILINE)


def theorems() -> dict[str, str]:
    """All theorems and lemmas, and the file that each is in."""
    return {
        name: file.name
        for file in FILES
        for name in re.findall(r"^(?:Theorem|Lemma) (\w+'?)", code(file.read_text(encoding="utf-8")), re.MULTILINE)
    }


def documented() -> dict[str, str]:
    """The theorems that the page names, by its tables: in the first column the name, in the second the file."""
    rows = re.findall(r"^\| `(\w+)` \| `(\w+\.v)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(rows) > 20
    return dict(rows)


def test_every_theorem_of_the_page_is_in_the_sources():
    for name, file in documented().items():
        assert theorems().get(name) == file, name


def test_every_theorem_of_the_page_is_checked_for_axioms():
    checked = re.findall(r"^Print Assumptions (\w+)\.", (PROOFS / "Assumptions.v").read_text(encoding="utf-8"), re.M)
    assert set(checked) == set(documented())


def test_every_file_is_compiled():
    listed = re.search(r"^theories := (.*)$", (PROOFS / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert {f"{name}.v" for name in listed[1].split()} | {"Assumptions.v", "Extract.v"} == {file.name for file in FILES}


def test_no_number_is_realised_by_something_else():
    """Extraction maps nothing but booleans, options, pairs and lists: the page says so."""
    text = code((PROOFS / "Extract.v").read_text(encoding="utf-8"))
    assert re.findall(r"Extract (?:Inlined |)(?:Constant|Inductive)", text) == []
    assert re.findall(r"\bExtrO\w+", text) == ["ExtrOcamlBasic"]


def test_the_tests_that_docs_name_exist():
    """docs/trust.md puts the tests that attack a constant next to it."""
    page = (ROOT / "docs" / "trust.md").read_text(encoding="utf-8")
    tests = "".join(file.read_text(encoding="utf-8") for file in (ROOT / "tests").rglob("test_*.py"))
    named = re.findall(r"`(test_\w+)`", page)
    assert len(named) > 10
    for name in named:
        assert f"def {name}(" in tests, name
