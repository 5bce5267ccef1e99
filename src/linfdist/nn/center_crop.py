"""The middle of an image."""

import math
from fractions import Fraction

from torch import Tensor

from .base import Box, LipschitzModule, Rounding, Shape


def centred(shape: Shape, size: int) -> tuple[int, int]:
    """Row and column where the middle `size` × `size` pixels of an image (..., H, W) begin: the upper left of two."""
    height, width = shape[-2:]
    return (height - size) // 2, (width - size) // 2


class CenterCrop(LipschitzModule):
    """(B, C, H, W) -> (B, C, size, size): the middle (Section 7.1: TinyImageNet's 56×56); where a margin is odd, the
    smaller half is cut off at the top or left. Images of that size pass as they are: augmentation has cropped them.
    """

    repeatable = True
    lipschitz = 1.0

    def __init__(self, size: int) -> None:
        super().__init__()
        if size < 1:
            raise ValueError(f"the size of a crop must be at least 1, got {size}")
        self.size = size

    def forward(self, x: Tensor, p: float | Tensor = math.inf) -> Tensor:
        height, width = x.shape[-2:]
        if height < self.size or width < self.size:
            raise ValueError(f"cannot crop an image of {height}x{width} to {self.size}x{self.size}")
        top, left = centred(x.shape, self.size)
        return x[..., top : top + self.size, left : left + self.size]  # (B, C, size, size)

    def forward_box(self, box: Box) -> Box:
        return Box(self(box.lower), self(box.upper))

    def output_shape(self, shape: Shape) -> Shape:
        return (*shape[:-2], self.size, self.size)

    def rounding(self, size: Fraction, unit: Fraction) -> Rounding:
        return Rounding.of(size, 0, unit)

    def extra_repr(self) -> str:
        return f"{self.size}"
