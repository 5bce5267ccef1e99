"""Means of square blocks of an image, of several sizes side by side."""

import math
from collections.abc import Sequence
from fractions import Fraction

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d

from .base import Box, LipschitzModule, Rounding, Shape
from .rounding import mean_rounding, mean_slack, widened

LARGEST = 1024  # pixels of a block's side: far beyond every image, and small enough for the bounds of the rounding


class MeanPool(LipschitzModule):
    """For each size k, the means of the k×k blocks that tile the image; all of them in one vector.

    (B, C, H, W) -> (B, F): for k of `sizes` in turn C·(H // k)·(W // k) means, channel by channel and row by row. Rows
    and columns that are left over at the bottom and at the right are dropped. Size 1 gives the pixels themselves.

    A mean moves by no more than the numbers that it is the mean of, so the layer is 1-Lipschitz; and a change of a few
    pixels of a block moves it by a fraction only. Sums are rounded in an order that is not known: bounds get a slack.
    """

    lipschitz = 1.0

    def __init__(self, sizes: Sequence[int]) -> None:
        super().__init__()
        self.sizes = check_pool(sizes)
        if not self.sizes:
            raise ValueError("a MeanPool needs at least one size of blocks; got none")

    def forward(self, x: Tensor, p: float | Tensor = math.inf) -> Tensor:
        if x.dim() != 4:
            raise ValueError(f"a MeanPool takes images (B, C, H, W), got {tuple(x.shape)}")
        self.output_shape(x.shape[1:])
        return torch.cat([x.flatten(1) if k == 1 else avg_pool2d(x, k).flatten(1) for k in self.sizes], 1)

    def forward_box(self, box: Box) -> Box:
        """Means of the ends in float64, moved outwards by what rounding can do in any order of summation."""
        dtype = box.lower.dtype
        lower, upper = box.lower.double(), box.upper.double()
        furthest = torch.maximum(lower.abs(), upper.abs())
        parts = []
        for k in self.sizes:
            if k == 1:
                parts.append(Box(box.lower.flatten(1), box.upper.flatten(1)))
            else:
                low, high, size = (avg_pool2d(each, k).flatten(1) for each in (lower, upper, furthest))
                parts.append(widened(low, high, mean_slack(size, k * k, dtype), dtype))
        return Box(torch.cat([part.lower for part in parts], 1), torch.cat([part.upper for part in parts], 1))

    def output_shape(self, shape: Shape) -> Shape:
        """The number of means; ValueError if the image is smaller than a block."""
        if len(shape) != 3:
            raise ValueError(f"a MeanPool takes images (C, H, W), got {tuple(shape)}")
        channels, height, width = shape
        if max(self.sizes) > min(height, width):
            raise ValueError(f"an image of {height}x{width} has no block of {max(self.sizes)}x{max(self.sizes)} pixels")
        return (sum(channels * (height // k) * (width // k) for k in self.sizes),)

    def rounding(self, size: Fraction, unit: Fraction) -> Rounding:
        """That of the largest blocks; pixels are copied exactly."""
        largest = max(self.sizes)
        return Rounding.of(size, 0, unit) if largest == 1 else mean_rounding(size, largest**2, unit)

    def extra_repr(self) -> str:
        return f"{list(self.sizes)}"


def check_pool(sizes: object) -> tuple[int, ...]:
    """The sizes of blocks as a tuple, which may be empty; TypeError or ValueError for what cannot be sizes."""
    if not isinstance(sizes, Sequence) or not all(type(k) is int for k in sizes):
        raise TypeError(f"sizes of blocks must be a list of whole numbers such as [1, 2, 4], got {sizes!r}")
    if wrong := [k for k in sizes if not 1 <= k <= LARGEST]:
        raise ValueError(f"every size of a block must be between 1 and {LARGEST} pixels, got {wrong[0]}")
    if len(set(sizes)) < len(sizes):
        raise ValueError(f"sizes of blocks must not repeat, got {str(list(sizes))[:60]}")
    return tuple(sizes)
