"""The folder of a run, read and checked. Only rows.jsonl and summary.json must be there."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

from ..eps import parse_eps
from .gallery import Gallery, read_gallery
from .rows import Row, check_proofs, read_rows

EVALUATE = "`linfdist evaluate` writes it"


@dataclass(frozen=True)
class Run:
    """What a report is made from.

    eps: exact. summary, recipe: as stored. metrics: one mapping an epoch, empty if there are none.
    classes: a name for every class; the class's number where no name is known.
    """

    name: str
    rows: tuple[Row, ...]
    summary: Mapping[str, Any]
    eps: Fraction
    classes: tuple[str, ...]
    recipe: Mapping[str, Any] | None = None
    metrics: tuple[Mapping[str, Any], ...] = field(default=())
    gallery: Gallery | None = None


def read_run(folder: Path) -> Run:
    """Everything in the folder that a report shows; ValueError or OSError says what is wrong and what to do."""
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is no folder; give the folder that `linfdist evaluate` wrote into")
    for name in ("rows.jsonl", "summary.json"):
        if not (folder / name).is_file():
            raise FileNotFoundError(f"{folder} has no {name}; {EVALUATE}")
    rows = read_rows(folder / "rows.jsonl")
    summary = _summary(folder / "summary.json", rows)
    eps = parse_eps(summary["eps"])
    check_proofs(rows, eps, folder / "rows.jsonl")
    recipe_file, gallery_file = folder / "recipe.json", folder / "gallery.safetensors"
    gallery = read_gallery(gallery_file, rows) if gallery_file.is_file() else None
    return Run(
        name=folder.resolve().name,
        rows=rows,
        summary=summary,
        eps=eps,
        classes=_classes(rows, summary, gallery),
        recipe=_object(recipe_file) if recipe_file.is_file() else None,
        metrics=_metrics(folder / "metrics.jsonl"),
        gallery=gallery,
    )


def _object(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"{path} must hold a JSON object")
    return value


def _summary(path: Path, rows: tuple[Row, ...]) -> dict[str, Any]:
    """The summary, if it is that of these rows: a mixture of two evaluations would show what nobody has measured."""
    summary = _object(path)
    missing = [key for key in ("n", "eps", "clean", "certified", "method", "model_sha256") if key not in summary]
    if missing:
        raise ValueError(f"{path} has no {', '.join(missing)}; {EVALUATE}")
    if not isinstance(summary["eps"], str):
        raise ValueError(f'{path}: eps = {summary["eps"]!r} must be text, such as "0.3" or "8/255"')
    n = len(rows)
    counted = {
        "n": n,
        "clean": 100 * sum(row.correct for row in rows) / n,
        "certified": 100 * sum(row.certified for row in rows) / n,
    }
    for key, value in counted.items():
        stated = summary[key]
        number = isinstance(stated, int | float) and not isinstance(stated, bool)
        if not number or not abs(stated - value) < 1e-6:
            raise ValueError(f"{path}: {key} = {stated!r}, but rows.jsonl gives {value!r}: evaluate again")
    return summary


def _classes(rows: tuple[Row, ...], summary: Mapping[str, Any], gallery: Gallery | None) -> tuple[str, ...]:
    stated = summary.get("classes")
    known = stated if isinstance(stated, list) else gallery.classes if gallery else ()
    names = [str(name) for name in known]
    count = max(max(row.label, row.prediction) for row in rows) + 1
    return tuple(names + [str(k) for k in range(len(names), count)])


def _metrics(path: Path) -> tuple[Mapping[str, Any], ...]:
    """Epochs in order; a line cut off by a crash ends them."""
    epochs = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else []:
        try:
            epoch = json.loads(line)
        except ValueError:
            break
        if not isinstance(epoch, dict) or not isinstance(epoch.get("epoch"), int | float):
            raise ValueError(f"{path}: every line must be a JSON object with an epoch, got {line[:80]!r}")
        epochs.append(epoch)
    return tuple(epochs)
