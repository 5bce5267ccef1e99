"""Layers that copy pixels: the middle of an image, other views of it, images as vectors."""

import math
import re
from fractions import Fraction

import torch
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


_SHIFT = re.compile(r"shift:(-?[0-9]{1,4}),(-?[0-9]{1,4})")


class View(LipschitzModule):
    """Copies every pixel of the view from one of the image's, (B, C, H, W) -> (B, C, H, W).

    "same": the image itself. "mirror": left and right exchanged. "shift:1,-2": all pixels one row down and two columns
    to the left (negative numbers: up, and to the left); what comes in at the edges repeats the pixels there, as padding
    in augmentation with repeated edges does.

    Nothing is computed, so views are exact, and 1-Lipschitz.
    """

    repeatable = True
    lipschitz = 1.0

    def __init__(self, name: str) -> None:
        super().__init__()
        shift = _SHIFT.fullmatch(name) if isinstance(name, str) else None
        if shift is None and name not in ("same", "mirror"):
            raise ValueError(
                f"no view is called {name!r}: take 'same', 'mirror', or a shift by rows and columns such as 'shift:1,0'"
            )
        self.view = name
        self.down, self.right = (int(shift[1]), int(shift[2])) if shift else (0, 0)

    def forward(self, x: Tensor, p: float | Tensor = math.inf) -> Tensor:
        self.output_shape(x.shape[1:])
        if self.view == "same":
            return x
        if self.view == "mirror":
            return x.flip(3)
        rows, columns = self.places(x.shape, x.device)
        return x.index_select(2, rows).index_select(3, columns)

    def forward_box(self, box: Box) -> Box:
        return Box(self(box.lower), self(box.upper))

    def output_shape(self, shape: Shape) -> Shape:
        if len(shape) != 3:
            raise ValueError(f"a view is one of an image (C, H, W), not of {tuple(shape)}")
        if abs(self.down) >= shape[1] or abs(self.right) >= shape[2]:
            raise ValueError(f"{self.view!r} moves an image of {shape[1]}x{shape[2]} pixels out of sight")
        return shape

    def rounding(self, size: Fraction, unit: Fraction) -> Rounding:
        return Rounding.of(size, 0, unit)

    def extra_repr(self) -> str:
        return repr(self.view)

    def places(self, shape: Shape, device: torch.device) -> tuple[Tensor, Tensor]:
        """Row and column of the image (..., H, W) that each row and column of the view is copied from."""
        height, width = shape[-2:]
        rows = (torch.arange(height, device=device) - self.down).clamp(0, height - 1)
        columns = (torch.arange(width, device=device) - self.right).clamp(0, width - 1)
        return rows, columns.flip(0) if self.view == "mirror" else columns


class Flatten(LipschitzModule):
    """(B, C, H, W) -> (B, C*H*W), row-major."""

    repeatable = True
    lipschitz = 1.0

    def forward(self, x: Tensor, p: float | Tensor = math.inf) -> Tensor:
        return x.flatten(1)

    def forward_box(self, box: Box) -> Box:
        return Box(box.lower.flatten(1), box.upper.flatten(1))

    def output_shape(self, shape: Shape) -> Shape:
        return (math.prod(shape),)

    def rounding(self, size: Fraction, unit: Fraction) -> Rounding:
        return Rounding.of(size, 0, unit)
