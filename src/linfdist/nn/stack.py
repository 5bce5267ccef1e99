"""Layers one after the other."""

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import cast

from torch import Tensor, nn

from ..eps import round_up
from .base import Box, LipschitzModule, Rounding, Shape


class Stack(LipschitzModule):
    """The composition of layers: `torch.nn.Sequential` that hands p down and maps boxes too.

    A stack within a stack counts as the layers that it holds.
    """

    repeatable = True
    parts = (nn.ModuleList,)

    def __init__(self, *layers: LipschitzModule) -> None:
        super().__init__()
        flat = [each for layer in layers for each in (layer if isinstance(layer, Stack) else (layer,))]
        self.layers = nn.ModuleList(flat)

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

    def output_shape(self, shape: Shape) -> Shape:
        return self.shapes(shape)[-1]

    def shapes(self, shape: Shape) -> list[Shape]:
        """The shapes of the input and of each layer's output, without the batch."""
        found = [shape]
        for layer in self:
            found.append(layer.output_shape(found[-1]))
        return found

    def rounding(self, size: Fraction, unit: Fraction) -> Rounding:
        """A layer passes the error of its input on, times its Lipschitz constant, and adds its own."""
        peak, error = size, Fraction(0)
        for layer in self:
            own = layer.rounding(size, unit)
            size, peak, error = own.size, max(peak, own.peak), error * Fraction(layer.lipschitz) + own.error
        return Rounding(size, peak, error)

    def terms(self, shape: Shape) -> int:
        return sum(layer.terms(each) for layer, each in zip(self, self.shapes(shape), strict=False))

    def elements(self, shape: Shape) -> int:
        layers = (layer.elements(each) for layer, each in zip(self, self.shapes(shape), strict=False))
        return max(*layers, math.prod(self.output_shape(shape)), math.prod(shape))
