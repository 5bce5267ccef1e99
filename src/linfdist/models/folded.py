"""A network as dist layers in pixels: normalisation and shifts are absorbed into the weights."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ..nn import (
    CenterCrop,
    Clip,
    DistLinear,
    Flatten,
    Handlers,
    Head,
    MeanPool,
    MeanShift,
    NearestClass,
    Normalize,
    Stack,
)
from .base import PixelNet
from .mean import MeanLogits


class FoldedLayer(NamedTuple):
    """y = max_i |x[i] − weight[:, i]| in pixels, x being the y of the layer before, or what the stem gives.

    weight: (O, I) float64, a sum of at most three terms; size bounds one of them, so that the rounding of float64 is
    known to be small.
    """

    weight: Tensor
    size: float


class Folded:
    """A network times its std, in float64.

    It has a stem, in which pixels may be cropped, clipped and averaged over blocks, then dist layers alone, then
    perhaps sums of the neurons of each class.

    |(x − m)/s − w| s = |x − (m + s w)|, and |y − shift − w| = |y − (w + shift)|: means, shifts and biases go into the
    weights that follow. A clipped and stretched pixel equals a clipped pixel with another mean and std. What follows
    the last layer stays in `offset`, in pixels; `size` bounds the terms of its sum. Layers are added in the order of
    the data, by `fold`.
    """

    def __init__(self, shape: Sequence[int]) -> None:
        self.shape = tuple(shape)  # of the values so far, without the batch
        self.crop: int | None = None  # the side of the middle that is left of the image
        self.clip: tuple[float, float] | None = None  # the least and the largest pixel after it
        self.pool: tuple[int, ...] = ()  # the sizes of blocks whose means the first layer sees; empty: the pixels
        self.std = 1.0
        self.layers: list[FoldedLayer] = []
        self.per_class = 1  # outputs of the last layer, one after the other, whose mean counts
        self.offset, self.size = torch.zeros(self.shape, dtype=torch.float64), 0.0  # offset: of that shape
        self._raw = len(self.shape) == 3  # values are still the pixels, but for a crop and a clip

    def crop_to(self, size: int, shape: tuple[int, ...]) -> None:
        """Add the centre crop to `size`, after which values have this shape. Raises TypeError unless it comes first.

        Two consecutive crops are not one crop if a margin is odd, and offsets would have to be cropped too.
        """
        if self.crop is not None or self.clip is not None or not self._raw:
            raise TypeError("only a network that crops once, before everything else, can be folded")
        self.crop, self.shape, self.offset = size, shape, torch.zeros(shape, dtype=torch.float64)

    def clip_to(self, low: float, span: float) -> None:
        """Add y = (x − low)/span, cut off below 0 and above 1. Raises TypeError if more than a crop comes before."""
        if self.clip is not None or not self._raw:
            raise TypeError("only a network that clips once, before everything but a crop, can be folded")
        self.clip, self.std = (low, low + span), span
        self.offset, self.size = self.offset - low, low

    def scale(self, mean: Tensor, std: float) -> None:
        """Add y = (x − mean)/std, mean (C, 1, 1). Raises TypeError if more than a crop and a clip comes before."""
        if not self._raw:
            raise TypeError("only a network that normalises once, before its dist layers, can be folded into these")
        self.shift(mean)
        self.std *= std

    def pool_to(self, sizes: Sequence[int], shape: tuple[int, ...]) -> None:
        """Add the means of blocks of these sizes, all in one vector of this shape.

        Raises TypeError unless its inputs are pixels whose offsets are constant in each channel.
        """
        if len(self.shape) != 3 or (self.offset != self.offset[:, :1, :1]).any():
            raise TypeError("only a network that averages blocks of pixels, before its dist layers, can be folded")
        channels, height, width = self.shape
        blocks = [self.offset[:, :1, :1].expand(channels, height // k, width // k).flatten() for k in sizes]
        self.pool, self.shape, self.offset, self._raw = tuple(sizes), shape, torch.cat(blocks), False

    def flatten(self) -> None:
        """Turn images into vectors, row-major."""
        self.offset, self._raw = self.offset.flatten(), False
        self.shape = tuple(self.offset.shape)

    def distance(self, weight: Tensor, bias: Tensor | None) -> None:
        """Add y = max_i |x[i] − weight[:, i]| + bias. Raises TypeError unless there are as many values as inputs."""
        if self.shape != (weight.shape[1],):
            raise TypeError(f"a dist layer of {weight.shape[1]} inputs cannot follow values of shape {self.shape}")
        if self.per_class > 1:
            raise TypeError("only a network that averages neurons after its last dist layer can be folded")
        self.layers.append(FoldedLayer(self.std * weight.detach().cpu().double() - self.offset, self.size))
        self.shape, self.size = (len(weight),), 0.0
        self.offset = torch.zeros(len(weight), dtype=torch.float64)
        if bias is not None:
            self.shift(-bias)

    def shift(self, amount: Tensor) -> None:
        """Add y = x − amount, which has a number for each channel or feature."""
        apart = self.std * amount.detach().cpu().double()
        self.offset = self.offset - apart.reshape(-1, *[1] * (len(self.shape) - 1))
        self.size, self._raw = self.size + float(apart.abs().max()), False

    def average(self, count: int) -> None:
        """Add the means of every `count` outputs of the last layer. Raises TypeError unless there is one."""
        if not self.layers or self.per_class > 1:
            raise TypeError("only the neurons of a dist layer can be averaged, and only once")
        self.per_class = count


fold: Handlers[[Folded], None] = Handlers(
    "linfdist.models.folded.fold", "has no form in integers, nor in mixed-integer programs"
)
"""fold(layer, folded) adds a layer, or what the logits of a readout are the negation of, to a network in pixels and
float64, from which integer networks and programs are made.
"""


def fold_network(network: PixelNet, logits: bool = True) -> Folded:
    """Fold the dist layers of a network in pixels, up to its logits, or else to its features.

    Raises TypeError that names the part that has no such form.
    """
    folded = Folded(network.shape)
    fold(network.body, folded)
    if logits:
        fold(network.readout, folded)
    return folded


@fold.register(Stack)
def _(stack: Stack, folded: Folded) -> None:
    for layer in stack:
        fold(layer, folded)


@fold.register(CenterCrop)
def _(layer: CenterCrop, folded: Folded) -> None:
    folded.crop_to(layer.size, layer.output_shape(folded.shape))


@fold.register(Clip)
def _(layer: Clip, folded: Folded) -> None:
    folded.clip_to(layer.low.item(), float(layer.span()))


@fold.register(Normalize)
def _(layer: Normalize, folded: Folded) -> None:
    folded.scale(layer.mean, layer.std.item())


@fold.register(MeanPool)
def _(layer: MeanPool, folded: Folded) -> None:
    folded.pool_to(layer.sizes, layer.output_shape(folded.shape))


@fold.register(Flatten)
def _(layer: Flatten, folded: Folded) -> None:
    folded.flatten()


@fold.register(MeanShift)
def _(layer: MeanShift, folded: Folded) -> None:
    folded.shift(layer.running_mean)


@fold.register(DistLinear)
def _(layer: DistLinear, folded: Folded) -> None:
    folded.distance(layer.weight, layer.bias)


@fold.register(NearestClass)
def _(readout: NearestClass, folded: Folded) -> None:
    folded.distance(readout.weight, readout.bias)
    folded.average(readout.per_class)


@fold.register(Head)
def _(readout: Head, folded: Folded) -> None:
    raise TypeError("a Head does not consist of distances alone")


@fold.register(MeanLogits)
def _(readout: MeanLogits, folded: Folded) -> None:
    raise TypeError(
        "a Mean has no form in integers, nor in mixed-integer programs; each of its members has, as another "
        'classifier: linfdist.models.save(network.members[0], "member.safetensors")'
    )
