"""Choose the most and the least robust images, and find the smallest perturbation that changes the class of each."""

from collections.abc import Sequence
from fractions import Fraction

import torch

from ..attacks import smallest
from ..data import Dataset
from ..models import Network
from ..runs.folder import Gallery
from ..runs.rows import Row

EACH = 8  # of the most robust images, and as many of the least
ROUNDS = 6  # of the search for small perturbations


def make(network: Network, dataset: Dataset, rows: Sequence[Row], eps: Fraction) -> Gallery | None:
    """Make the gallery: the eight correctly classified images of the smallest radius, then the eight of the largest.

    Images for which no perturbation is found are left out; None if there is nothing to show.
    """
    chosen = choose(rows)
    if not chosen:
        return None
    indices = torch.tensor([row.index for row in chosen])
    images = dataset.images[indices]
    x = network.from_bytes(images)
    found = smallest(network, x, dataset.labels[indices].to(x.device), eps or Fraction(1, 255), ROUNDS)
    broken = found.broken.nonzero().flatten().tolist()
    if not broken:
        return None
    return Gallery(
        rows=tuple(chosen[k] for k in broken),
        images=images[broken],
        attacked=network.to_pixels(found.images[broken]).cpu(),
        sizes=tuple(float(found.size[k]) for k in broken),
        predictions=tuple(found.prediction[broken].tolist()),
        classes=tuple(dataset.classes),
    )


def choose(rows: Sequence[Row]) -> list[Row]:
    """Choose the rows of the least and the most robust images, by radius; none twice, ties in the data set's order."""
    correct = sorted((row for row in rows if row.correct), key=lambda row: row.radius)
    return correct[:EACH] + correct[EACH:][-EACH:]
