"""From images to vectors."""

import math
from fractions import Fraction

from torch import Tensor

from .base import Box, LipschitzModule, Rounding, Shape


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
