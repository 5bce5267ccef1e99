"""One row per image; everything that is reported is made from rows."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..certificates import margin
from ..data import Dataset
from ..eps import parse_eps
from ..files import write_atomically
from ..models import DistNet, PixelNet

Row = dict[str, Any]
BATCH = 512


def rows_of(network: PixelNet, dataset: Dataset, eps: str) -> Iterator[list[Row]]:
    """Rows of the data set in order, a batch at a time: index, label, prediction, radius (pixels), certified at eps."""
    exact = parse_eps(eps)
    for start in range(0, len(dataset), BATCH):
        labels = dataset.labels[start : start + BATCH]
        proof = margin(network, dataset.images[start : start + BATCH].float() / 255)
        certified = proof.certified(exact) & (proof.prediction == labels)
        columns = zip(
            labels.tolist(), proof.prediction.tolist(), proof.radius.tolist(), certified.tolist(), strict=True
        )
        yield [
            {"index": start + k, "label": label, "prediction": prediction, "radius": radius, "certified": is_certified}
            for k, (label, prediction, radius, is_certified) in enumerate(columns)
        ]


def evaluate(network: PixelNet, dataset: Dataset, eps: str, out: Path, model_file: Path) -> dict[str, Any]:
    """Write rows.jsonl and summary.json into `out`, and return the summary."""
    rows = [row for batch in rows_of(network, dataset, eps) for row in batch]
    write_atomically(out / "rows.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    summary = summarise(rows, eps) | {
        "data": dataset.name,
        "method": "margin",
        "model_sha256": hashlib.sha256(model_file.read_bytes()).hexdigest(),
    }
    write_atomically(out / "summary.json", json.dumps(summary, indent=2) + "\n")
    return summary


def summarise(rows: list[Row], eps: str) -> dict[str, Any]:
    """Percentages; errors count as radius 0. `robust` is null: no attack was run."""
    n = len(rows)
    correct = [row for row in rows if row["prediction"] == row["label"]]
    return {
        "n": n,
        "eps": eps,
        "clean": 100 * len(correct) / n,
        "robust": None,
        "certified": 100 * sum(row["certified"] for row in rows) / n,
        "mean_radius": sum(row["radius"] for row in correct) / n,
    }


@torch.no_grad()
def watch(network: PixelNet, images: Tensor, labels: Tensor, eps: str) -> dict[str, float]:
    """Clean and (for plain nets) certified accuracy in percent, for a look during training."""
    exact, clean, certified = parse_eps(eps), 0, 0
    for start in range(0, len(images), BATCH):
        x, y = images[start : start + BATCH].float() / 255, labels[start : start + BATCH]
        if isinstance(network, DistNet):
            proof = margin(network, x)
            certified += int((proof.certified(exact) & (proof.prediction == y)).sum())
            clean += int((proof.prediction == y).sum())
        else:
            clean += int((network(x).argmax(1) == y).sum())
    result = {"clean": 100 * clean / len(images)}
    return result | {"certified": 100 * certified / len(images)} if isinstance(network, DistNet) else result
