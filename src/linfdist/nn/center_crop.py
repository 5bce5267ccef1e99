"""The middle of an image."""

import math

from torch import Tensor

from .base import Box, LipschitzModule


class CenterCrop(LipschitzModule):
    """(B, C, H, W) -> (B, C, size, size): the middle (Section 7.1: TinyImageNet's 56×56); where a margin is odd, the
    smaller half is cut off at the top or left. Images of that size pass as they are: augmentation has cropped them.
    """

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
        top, left = (height - self.size) // 2, (width - self.size) // 2
        return x[..., top : top + self.size, left : left + self.size]  # (B, C, size, size)

    def forward_box(self, box: Box) -> Box:
        return Box(self(box.lower), self(box.upper))

    def extra_repr(self) -> str:
        return f"{self.size}"
