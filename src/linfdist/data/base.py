"""A data set in memory."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """One split of a data set.

    images: uint8 (N, C, H, W); labels: int64 (N,), indices into `classes`.
    """

    name: str
    images: Tensor
    labels: Tensor
    classes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        shape = "×".join(str(side) for side in self.images.shape[1:])
        return f"<Dataset {self.name}: {len(self):,} images of {shape}, {len(self.classes)} classes>"


def spread_out(count: int, total: int) -> Tensor:
    """Return the indices of `count` of `total` samples, at most all: one from each of `count` equal stretches.

    So a data set that is sorted by class gives all of its classes. The position within a stretch moves with the golden
    ratio, because sets may alternate too: every other training image of MNIST comes from another collection of digits,
    and is far easier.
    """
    count = min(count, total)
    stretch = torch.arange(count)
    first, end = stretch * total // max(count, 1), (stretch + 1) * total // max(count, 1)
    share = stretch * 2654435769 % 2**32  # of 2**32: the fraction of a multiple of the golden ratio
    return first + (share * (end - first) >> 32)
