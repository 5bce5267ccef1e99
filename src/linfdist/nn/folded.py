"""Dist layers in pixels: what is left of a network once normalisation and shifts are absorbed into the weights."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class FoldedLayer(NamedTuple):
    """y = max_i |x[i] − weight[:, i]| in pixels, x being the y of the layer before, or the pixels.

    weight: (O, I) float64, a sum of at most three terms; size bounds one of them, so that what float64 cannot see of
    the sum is known to be small.
    """

    weight: Tensor
    size: float


class Folded:
    """A network times its std, in float64, as dist layers alone.

    |(x − m)/s − w| s = |x − (m + s w)|, and |y − shift − w| = |y − (w + shift)|: means, shifts and biases go into the
    weights that follow. What the last layer is followed by stays in `offset` (features,), in pixels; `size` bounds the
    terms that it is the sum of. Layers add themselves in the order of the data.
    """

    def __init__(self, shape: Sequence[int]) -> None:
        self.shape = tuple(shape)  # of the values so far, without the batch
        self.crop: int | None = None
        self.std = 1.0
        self.layers: list[FoldedLayer] = []
        self.offset, self.size = torch.zeros((), dtype=torch.float64), 0.0

    def crop_to(self, size: int, shape: tuple[int, ...]) -> None:
        """Add the centre crop to `size`, after which values have this shape. TypeError unless it comes first.

        Two crops after each other are not one crop where a margin is odd, and offsets would have to be cropped too.
        """
        if self.crop is not None or self.layers or self.size or self.std != 1.0 or len(self.shape) != 3:
            raise TypeError("only a network that crops once, before everything else, can be folded")
        self.crop, self.shape = size, shape

    def scale(self, mean: Tensor, std: float) -> None:
        """Add y = (x − mean)/std, mean (C, 1, 1). TypeError unless it comes first."""
        if self.layers or self.size or self.std != 1.0 or len(self.shape) != 3:
            raise TypeError("only a network that normalises once, before its dist layers, can be folded into these")
        self.std = std
        self.offset = -mean.detach().cpu().double().expand(self.shape).flatten()
        self.size = float(self.offset.abs().max())

    def distance(self, weight: Tensor, bias: Tensor | None) -> None:
        """Add y = max_i |x[i] − weight[:, i]| + bias. TypeError unless the values so far are as many as the inputs."""
        if self.shape != (weight.shape[1],):
            raise TypeError(f"a dist layer of {weight.shape[1]} inputs cannot follow values of shape {self.shape}")
        self.layers.append(FoldedLayer(self.std * weight.detach().cpu().double() - self.offset, self.size))
        self.shape, self.size = (len(weight),), 0.0
        self.offset = torch.zeros(len(weight), dtype=torch.float64)
        if bias is not None:
            self.shift(-bias)

    def shift(self, amount: Tensor) -> None:
        """Add y = x − amount."""
        apart = self.std * amount.detach().cpu().double()
        self.offset, self.size = self.offset - apart, self.size + float(apart.abs().max())
