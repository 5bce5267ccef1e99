"""The most and the least robust images, each with the smallest perturbation found that changes its class."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import torch
from torch import Tensor

from ..attacks import smallest
from ..data import Dataset
from ..eps import parse_eps
from ..files import save_tensors
from ..models import PixelNet
from .invariants import Violation
from .rows import as_pixels, predictions
from .summary import Row

FILE = "gallery.safetensors"
EACH = 8  # of either kind
ROUNDS = 6  # of the strong attack


@dataclass(frozen=True)
class Gallery:
    """Rows of some images, the images uint8 (N, C, H, W), those found (N, C, H, W), their sizes and classes."""

    rows: list[Row]
    images: Tensor
    attacked: Tensor
    sizes: list[float]
    predictions: list[int]

    def violations(self) -> list[Violation]:
        """Images that change their class within their proved radius."""
        return [
            Violation(
                row, f"radius {row['radius']!r}, but class {prediction} with a perturbation of {size!r}", "smallest"
            )
            for row, size, prediction in zip(self.rows, self.sizes, self.predictions, strict=True)
            if row["radius"] > 0 and Fraction(size) <= Fraction(row["radius"])
        ]

    def by_index(self) -> dict[int, Tensor]:
        """The attacked images (C, H, W)."""
        return {row["index"]: image for row, image in zip(self.rows, self.attacked, strict=True)}

    def save(self, out: Path, classes: Sequence[str]) -> None:
        """Write gallery.safetensors: `images`, `attacked`, and lists in its header."""
        header = {
            "index": [row["index"] for row in self.rows],
            "label": [row["label"] for row in self.rows],
            "radius": [row["radius"] for row in self.rows],
            "size": self.sizes,
            "prediction": self.predictions,
            "classes": list(classes),
        }
        save_tensors(out / FILE, {"images": self.images, "attacked": self.attacked.float()}, header)


def make(network: PixelNet, dataset: Dataset, rows: Sequence[Row], eps: str) -> Gallery | None:
    """The eight correctly classified images of the smallest and of the largest radius, in that order; None if there are
    none. Images for which no perturbation at all is found are left out."""
    chosen = choose(rows)
    if not chosen:
        return None
    indices = torch.tensor([row["index"] for row in chosen])
    images, y = dataset.images[indices], dataset.labels[indices].to(next(network.parameters()).device)
    start = min(parse_eps(eps), Fraction(1)) or Fraction(1, 255)
    found = smallest(network, as_pixels(network, images), y, start, rounds=ROUNDS)
    broken = found.broken.nonzero().flatten().tolist()
    if not broken:
        return None
    return Gallery(
        [chosen[k] for k in broken],
        images[broken],
        found.images[broken],
        [float(found.size[k]) for k in broken],
        predictions(network, found.images[broken]),
    )


def choose(rows: Sequence[Row]) -> list[Row]:
    """The rows of the least and of the most robust images, by radius; none twice, ties in the order of the data set."""
    correct = sorted((row for row in rows if row["prediction"] == row["label"]), key=lambda row: row["radius"])
    least = correct[:EACH]
    return least + correct[EACH:][-EACH:]
