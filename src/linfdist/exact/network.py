"""Frozen networks: dist nets in integers, from 8-bit pixels to logits, or to the features of a head in float64."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ..nn import CenterCrop
from ..ops import exact as kernels
from .bounds import BYTE, INT16, INT32, largest, reach, rows
from .head import FrozenHead

SIDED_BELOW = 0.6  # entries of `Sides`, as a share of all weights, up to which they are faster than the dense kernel
MAX_K = 7  # 255 · 2^7 is the last input that fits int16


@dataclass(frozen=True, eq=False)
class FrozenLayer:
    """y[o] = max_i |x[i] - weight[o, i]| + bias[o], over the entries of `mask` alone.

    weight: (O, I) int16, or int32 where int16 might overflow; entries outside the mask hold the middle of their input's
    range, which never wins, so that the dense form is the same function. mask: (O, I) bool; bias: (O,) int32; low and
    high: (I,) int64, the range of each input. ValueError for what cannot be evaluated without overflow.
    """

    weight: Tensor
    mask: Tensor
    bias: Tensor
    low: Tensor
    high: Tensor

    def __post_init__(self) -> None:
        if not self.mask.any(1).all():
            raise ValueError("a neuron has no entries: the maximum of nothing is undefined")
        limit = INT16 if self.weight.dtype == torch.int16 else INT32
        size = largest(self.low, self.high, self.weight, self.mask, self.bias.long())
        if self.weight.dtype not in (torch.int16, torch.int32) or size > limit:
            raise ValueError(f"values of a layer reach {size}, which {self.weight.dtype} cannot hold")
        span = (self.high - self.low + 1).div(2, rounding_mode="floor")  # how far the middle of a range can be
        floor = self.range[0] - self.bias
        for part in rows(self.mask):
            if (span.masked_fill(self.mask[part], 0).amax(1) > floor[part]).any():
                raise ValueError("an entry that was left out could win: the mask is not that of a lossless pruning")

    @classmethod
    def fitting(cls, weight: Tensor, mask: Tensor, bias: Tensor, low: Tensor, high: Tensor) -> "FrozenLayer":
        """In int16 if that provably holds every value, else in int32; all arguments are int64, the mask is bool."""
        size = largest(low, high, weight, mask, bias)
        if size > INT32:
            raise ValueError(f"values of a layer reach {size} grid units, which 32 bits cannot hold: take a smaller k")
        dtype = torch.int16 if size <= INT16 else torch.int32
        middle = (low + high).div(2, rounding_mode="floor")  # (I,)
        return cls(torch.where(mask, weight, middle).to(dtype), mask, bias.to(torch.int32), low, high)

    @cached_property
    def range(self) -> tuple[Tensor, Tensor]:
        """The reachable range of each output, two tensors (O,) int64."""
        return reach(self.low, self.high, self.weight, self.mask, self.bias.long())

    @cached_property
    def entries(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """start (O + 1,) int64, then index int32, weight and limit of all kept entries: those of neuron o are
        start[o] : start[o + 1], by descending limit, the largest |x - w| that is possible.
        """
        neuron, index = self.mask.nonzero(as_tuple=True)
        weight = self.weight[neuron, index]
        limit = torch.maximum(self.high[index] - weight, weight - self.low[index])
        order = (neuron * (INT32 + 1) + (INT32 - limit)).argsort(stable=True)  # by neuron, then descending limit
        start = torch.zeros(len(self.mask) + 1, dtype=torch.int64)
        start[1:] = self.mask.sum(1).cumsum(0)
        dtype = self.weight.dtype
        return start, index[order].to(torch.int32), weight[order], limit[order].to(dtype)

    @cached_property
    def sides(self) -> kernels.Sides:
        """The entries as the kernels for many images take them."""
        start, index, weight, _ = self.entries
        return kernels.one_sided(start, index, weight, self.low, self.high)

    @cached_property
    def bytes(self) -> kernels.Sides | None:
        """The sides for inputs and outputs less their lowest values, if those fit 8 bits.

        An output is its floor, the least it can be, and what goes beyond it: the largest of x - (w + floor) and
        (w - floor) - x, or 0. It varies by no more than the inputs do: so if 8 bits hold these, they hold that, and
        each w ± floor less the input's lowest value, or its side could never win.
        """
        if int((self.high - self.low).max()) > BYTE:
            return None
        neuron, start, middle, inputs, weight = self.sides
        floor = (self.range[0] - self.bias)[neuron.long()].repeat_interleave(start.diff())  # (K,)
        above = torch.arange(len(weight)) < middle.repeat_interleave(start.diff())
        shifted = weight + torch.where(above, floor, -floor) - self.low[inputs.long()]
        if len(shifted) and not 0 <= int(shifted.min()) <= int(shifted.max()) <= BYTE:
            raise AssertionError(f"weights of {shifted.min()} ... {shifted.max()} do not fit 8 bits")
        return kernels.Sides(neuron, start, middle, inputs, shifted.to(torch.uint8))

    def __call__(self, x: Tensor) -> Tensor:
        """(I, B) -> (O, B), feature-major, in the layer's own integer type. For one image dense is the faster form."""
        x = x.to(self.weight.dtype)
        if x.shape[1] == 1 or len(self.sides.weight) > SIDED_BELOW * self.weight.numel():
            return kernels.dense(x, self.weight, self.bias)
        return kernels.sided(x, *self.sides, self.bias)


@dataclass(frozen=True, eq=False)
class FrozenNet:
    """A network on the grid of 1/(255 · 2^k) pixels: its input is 2^k times the 8-bit pixels, all values are integers.

    shape: (C, H, W) of its images; crop: side of the centre crop, or None; lower, upper: uint8 (C, H, W), the range of
    each pixel (its domain); layers: see `FrozenLayer`; facts: plain JSON about its making; head: what the outputs of
    the last layer, its features, go through, or None: then they are the logits, negated.

    Without a head, logits are 1-Lipschitz: one level (1/255) of a pixel moves none of them by more than 2^k.
    """

    shape: tuple[int, int, int]
    crop: int | None
    k: int
    lower: Tensor
    upper: Tensor
    layers: tuple[FrozenLayer, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)
    head: FrozenHead | None = None

    def __repr__(self) -> str:
        widths = [self.layers[0].weight.shape[1], *(len(layer.bias) for layer in self.layers)]
        head = "" if self.head is None else f", head of {len(self.head.b1)}"
        layers = " -> ".join(map(str, widths)) + head
        return f"FrozenNet(shape={self.shape}, k={self.k}, layers={layers}, sha256={self.sha256[:12]}…)"

    def __post_init__(self) -> None:
        """Pruning and the absence of overflow hold for the ranges of the layers: they must be those of the domain."""
        if self.classes < 2:
            raise ValueError("a network with one class has no margin: nothing could be certified")
        low, high = (grid_inputs(bound[None], self.crop, self.k)[0].long() for bound in (self.lower, self.upper))
        for number, layer in enumerate(self.layers):
            if not (torch.equal(layer.low, low) and torch.equal(layer.high, high)):
                raise ValueError(f"layer {number} was made for inputs of other ranges: freeze the network again")
            low, high = layer.range
        if self.head is not None and self.head.w1.shape[1] != len(low):
            raise ValueError(f"the head takes {self.head.w1.shape[1]} features, the last layer has {len(low)}")

    @property
    def classes(self) -> int:
        return len(self.layers[-1].bias if self.head is None else self.head.b2)

    @cached_property
    def sha256(self) -> str:
        """The hash that certificates name: of the header and of all tensors, as they are in the file."""
        from .file import contents, digest

        return digest(*contents(self))

    @cached_property
    def whole_cube(self) -> bool:
        """Whether every 8-bit image is in the domain."""
        return bool((self.lower == 0).all() and (self.upper == 255).all())

    @cached_property
    def domain(self) -> str | None:
        """The sha256 of the least and the largest image of the domain; None if every 8-bit image is in it."""
        return None if self.whole_cube else image_sha256(torch.cat([self.lower, self.upper]))

    def __call__(self, images: Tensor) -> Tensor:
        """Logits (B, classes) of images uint8 (B, C, H, W) of the domain: int32 in grid units, with a head float64."""
        negated = self._negated(images)
        return negated if self.head is None else self.head(-negated)

    def features(self, images: Tensor) -> Tensor:
        """The outputs of the last integer layer, (B, F) int32, in grid units, of images uint8 (B, C, H, W)."""
        return -self._negated(images)

    def _negated(self, images: Tensor) -> Tensor:
        self.check_images(images)
        if len(images) > 1 and self._chain is not None:
            if not self.in_bytes:
                return kernels.network(cropped(images, self.crop), self.k, self._chain)
            above = images if self.whole_cube else images - self.lower
            return kernels.network(cropped(above, self.crop), self.k, self._chain) - self.layers[-1].range[0].int()
        x = grid_inputs(images, self.crop, self.k).T.contiguous()  # (I, B)
        for layer in self.layers:
            x = layer(x)
        return -x.T.to(torch.int32).contiguous()

    @cached_property
    def _chain(self) -> kernels.Chain | None:
        """All layers in one, the fastest way for more than one image, in 8 bits where these do; None where
        layers have different types, or so much is left of the weights that dense layers are faster.
        """
        layers = [
            (layer.bytes, torch.zeros_like(layer.bias)) if self.in_bytes and layer.bytes else (layer.sides, layer.bias)
            for layer in self.layers
        ]
        entries, weights = sum(len(each.weight) for each, _ in layers), sum(each.weight.numel() for each in self.layers)
        if len({each.weight.dtype for each, _ in layers}) > 1 or entries > SIDED_BELOW * weights:
            return None
        return kernels.chain(self.layers[0].weight.shape[1], layers)

    @property
    def in_bytes(self) -> bool:
        """Whether batches of images run in 8 bits."""
        return self.layers[0].bytes is not None  # and then the others: ranges do not grow from layer to layer

    def from_bytes(self, images: Tensor) -> Tensor:
        """Turn 8-bit images into what the network takes: they stay as they are."""
        return images

    def check_images(self, images: Tensor) -> None:
        """Raise unless these are images that the network was frozen for."""
        if images.dtype != torch.uint8:
            raise TypeError(f"a frozen network takes 8-bit pixels (uint8, 0 ... 255), got {images.dtype}")
        if images.dim() != 4 or tuple(images.shape[1:]) != self.shape:
            raise ValueError(f"need images (B, {', '.join(map(str, self.shape))}), got {tuple(images.shape)}")
        if self.whole_cube:
            return
        outside = ((images < self.lower) | (images > self.upper)).flatten(1).any(1)
        if outside.any():
            number = int(outside.nonzero()[0])
            c, i, j = ((images[number] < self.lower) | (images[number] > self.upper)).nonzero()[0].tolist()
            raise ValueError(
                f"image {number} is outside the domain the network was frozen for: channel {c}, row {i}, column {j} "
                f"is {int(images[number, c, i, j])}, allowed are {int(self.lower[c, i, j])} ... "
                f"{int(self.upper[c, i, j])}. Freeze it for a larger domain to use it on such images"
            )


def image_sha256(image: Tensor) -> str:
    """Of an image uint8 (C, H, W): its shape, as in "1,28,28:", then its pixels."""
    shape = ",".join(str(side) for side in image.shape)
    return hashlib.sha256(f"{shape}:".encode() + image.contiguous().numpy().tobytes()).hexdigest()


def cropped(images: Tensor, crop: int | None) -> Tensor:
    """Images (B, C, H, W) -> (B, I): the middle if cropped."""
    return (images if crop is None else CenterCrop(crop)(images)).flatten(1)


def grid_inputs(images: Tensor, crop: int | None, k: int) -> Tensor:
    """Images uint8 (B, C, H, W) -> (B, I) int16: the middle if cropped, times 2^k."""
    return cropped(images, crop).to(torch.int16) << k
