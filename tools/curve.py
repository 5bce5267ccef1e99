"""The curves of a network in a small file: certified accuracy against radius, and its training."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from linfdist.files import write_atomically
from linfdist.runs.rows import Row

POINTS = 200
_DIGITS = 10**6


def radii(rows: Sequence[Row], eps: float) -> list[float]:
    """Compute the curve of certified accuracy.

    radii[k]: a radius, rounded down, that at least (k + 1)/200 of all images are proved to have; errors count as 0.
    A certified image has eps, even where its radius, rounded down to a float, is a little less.
    """
    proved = [(max(row.radius, eps) if row.certified else row.radius) if row.correct else 0.0 for row in rows]
    ordered = sorted(proved, reverse=True)
    return [ordered[-(-(k + 1) * len(rows) // POINTS) - 1] * _DIGITS // 1 / _DIGITS for k in range(POINTS)]


def training(epochs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Choose at most 200 epochs, evenly spaced, the last one always: a chart needs no more."""
    count = min(POINTS, len(epochs))
    chosen = sorted({len(epochs) - 1 - k * len(epochs) // count for k in range(count)})
    keys = ("epoch", "p", "train_accuracy", "clean", "certified")
    return [{key: epochs[k][key] for key in keys if key in epochs[k]} for k in chosen]


def write(path: Path, rows: Sequence[Row], eps: float, epochs: Sequence[Mapping[str, Any]]) -> None:
    """Write both curves of a network."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, json.dumps({"radii": radii(rows, eps), "training": training(epochs)}) + "\n")
