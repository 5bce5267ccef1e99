"""Layers one after the other."""

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import cast

from torch import Tensor, nn

from ..numbers import round_up
from .base import Box, LipschitzModule


class Stack(LipschitzModule):
    """The composition of layers: `torch.nn.Sequential` that hands p down and maps boxes too."""

    def __init__(self, *layers: LipschitzModule) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def __iter__(self) -> Iterator[LipschitzModule]:
        return cast(Iterator[LipschitzModule], iter(self.layers))

    @property
    def lipschitz(self) -> float:
        """The product of the layers' constants, rounded up."""
        return round_up(math.prod((Fraction(layer.lipschitz) for layer in self), start=Fraction(1)))

    def forward(self, x: Tensor, p: float | Tensor = math.inf) -> Tensor:
        for layer in self:
            x = layer(x, p)
        return x

    def forward_box(self, box: Box) -> Box:
        for layer in self:
            box = layer.forward_box(box)
        return box
