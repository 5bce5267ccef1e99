"""Rows by hand, and what an evaluation leaves in its folder."""

import json
from pathlib import Path
from typing import Any

from linfdist.runs.rows import Attempt, Row


def row(index: int = 0, label: int = 1, prediction: int = 1, radius: float = 0.2, **more: Any) -> Row:
    """A row; attacks: name = (broken, prediction, size)."""
    attacks = {name: Attempt(*each) for name, each in more.pop("attacks", {}).items()}
    values = {"margin_radius": min(0.1, radius), "certified": False, "attacks": attacks, **more}
    return Row(index, label, prediction, radius, **values)


def read(folder: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Rows and summary, without the times."""
    rows = [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]
    summary = json.loads((folder / "summary.json").read_text())
    assert summary.pop("seconds").keys() == {"certify", *summary["attacks"]}
    return rows, summary


def names(folder: Path) -> set[str]:
    """All files but locks, which some versions of filelock leave and others do not."""
    return {path.name for path in folder.iterdir() if not path.name.endswith(".lock")}


def same_results(one: Path, other: Path) -> None:
    """To the byte, but for the times."""
    assert (one / "rows.jsonl").read_bytes() == (other / "rows.jsonl").read_bytes()
    assert read(one) == read(other)
    assert names(one) == names(other)
    if (one / "gallery.safetensors").exists():
        assert (one / "gallery.safetensors").read_bytes() == (other / "gallery.safetensors").read_bytes()
