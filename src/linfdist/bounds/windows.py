"""Forms of single coordinates, pulled back through layers that see one window of an image at a time.

A neuron of an early convolution depends on a few pixels around its place: its form is 0 everywhere else. Pulling the
form back within this window alone gives the same bound in a fraction of the time.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ..nn import Box, CenterCrop, LipschitzModule, Normalize
from ..nn.base import Handlers, Shape
from ..nn.pixels import centred
from .forms import Forms, both_ends, both_signs, lowest, pull_back


class Windowed(NamedTuple):
    """A layer that computes each place of an image (C, H, W) from a window of its input.

    Place (i, j) sees a square of side `kernel` from (i · stride + offset[0], j · stride + offset[1]) on, with 0 in
    place of what lies beyond the border. layer: the same computation of a window, without padding; None if the layer
    copies its window.
    """

    layer: LipschitzModule | None
    kernel: int = 1
    stride: int = 1
    offset: tuple[int, int] = (0, 0)


def _not_windowed(layer: LipschitzModule, shape: Shape) -> Windowed | None:
    return None


windowed: Handlers[[Shape], Windowed | None] = Handlers("linfdist.bounds.windowed", "has no windows", _not_windowed)
"""windowed(layer, shape) says how a layer computes images of this shape window by window; None, the default, if it does
not.

`pull_back` of the layer that is given must hold for a window cut out anywhere, whatever lies around it.
"""


@windowed.register(CenterCrop)
def _(layer: CenterCrop, shape: Shape) -> Windowed:
    return Windowed(None, offset=centred(shape, layer.size))


@windowed.register(Normalize)
def pointwise(layer: LipschitzModule, shape: Shape) -> Windowed:
    """Describe a layer each of whose outputs depends on the input at its place alone."""
    return Windowed(layer)


class Place(NamedTuple):
    """One window per form, all of one size: top and left (P,) int64, which may lie beyond the border; height, width."""

    top: Tensor
    left: Tensor
    height: int
    width: int


class Windows:
    """The windows of `layers`, from the pixels up to a coordinate of the last one's output of shape (C, H, W)."""

    def __init__(self, layers: Sequence[Windowed], shapes: Sequence[Shape]) -> None:
        """Take the shapes of the inputs of these layers and of the last one's output."""
        self.layers, self.shapes = layers, shapes
        size, self.elements = 1, 1
        for (layer, kernel, stride, _), shape in zip(reversed(layers), reversed(shapes[:-1]), strict=True):
            size = (size - 1) * stride + kernel
            window = (shape[0], size, size)
            self.elements = max(self.elements, math.prod(window) if layer is None else layer.elements(window))

    def ends(self, boxes: Sequence[Box], row: Tensor, place: Tensor, parallel: bool) -> Box:
        """Bound y[place] of samples `row` from both sides (P,), where y is the flattened output of the last layer.

        boxes: bounds of the inputs of the layers. parallel: see `Forms`.
        """
        channels, height, width = self.shapes[-1]
        channel, at = place // (height * width), place % (height * width)
        forms = both_signs(channel, torch.arange(len(place), device=place.device), (channels, 1, 1), parallel)
        window, box = Place(at // width, at % width, 1, 1), boxes[-1]
        for (layer, kernel, stride, offset), whole in zip(reversed(self.layers), reversed(boxes), strict=True):
            window = _below(window, kernel, stride, offset)
            box, inside = _cut_out(whole, row, window)
            forms = forms if layer is None else pull_back(layer, forms, box)
            forms = _within(forms, inside)
        return both_ends(lowest(forms, box))


def windows_of(layers: Sequence[LipschitzModule], shapes: Sequence[Shape]) -> Windows | None:
    """Return the windows of the outputs of these layers; None if a layer has no windows, or if they save nothing.

    shapes: of the inputs of the layers, and of the last one's output.
    """
    if any(len(shape) != 3 for shape in shapes):
        return None
    found: list[Windowed] = []
    for layer, shape in zip(layers, shapes[:-1], strict=True):
        each = windowed(layer, shape)
        if each is None:
            return None
        found.append(each)
    windows = Windows(found, shapes)
    whole = max(layer.elements(shape) for layer, shape in zip(layers, shapes[:-1], strict=True))
    return windows if windows.elements < whole else None


def _below(window: Place, kernel: int, stride: int, offset: tuple[int, int]) -> Place:
    """Return the window of its input that a layer needs to compute a window of its output."""
    top, left = (side * stride + start for side, start in zip(window[:2], offset, strict=True))
    return Place(top, left, *((side - 1) * stride + kernel for side in window[2:]))


def _cut_out(box: Box, row: Tensor, window: Place) -> tuple[Box, Tensor]:
    """Cut the windows (P, C, h, w) out of samples `row`, and mark the places inside the border (P, 1, h, w).

    Values beyond the border are 0.
    """
    down = window.top[:, None] + torch.arange(window.height, device=row.device)  # (P, h)
    right = window.left[:, None] + torch.arange(window.width, device=row.device)
    height, width = box.lower.shape[2:]
    inside = ((down >= 0) & (down < height))[:, :, None] & ((right >= 0) & (right < width))[:, None, :]
    down, right = down.clamp(0, height - 1)[:, None, :, None], right.clamp(0, width - 1)[:, None, None, :]
    channel = torch.arange(box.lower.shape[1], device=row.device)[None, :, None, None]
    inside = inside[:, None]
    return Box(*(side[row[:, None, None, None], channel, down, right].where(inside, 0.0) for side in box)), inside


def _within(forms: Forms, inside: Tensor) -> Forms:
    """Set weights beyond the border to 0: the layer sees zeros there, whatever the layers below would compute."""
    return forms._replace(weight=forms.weight.where(inside[forms.row], 0.0))
