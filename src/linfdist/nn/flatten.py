"""From images to vectors."""

import math

from torch import Tensor

from .base import Box, LipschitzModule


class Flatten(LipschitzModule):
    """(B, C, H, W) -> (B, C*H*W), row-major."""

    lipschitz = 1.0

    def forward(self, x: Tensor, p: float | Tensor = math.inf) -> Tensor:
        return x.flatten(1)

    def forward_box(self, box: Box) -> Box:
        return Box(box.lower.flatten(1), box.upper.flatten(1))
