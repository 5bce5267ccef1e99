"""Frozen networks: dist nets in integers, from 8-bit pixels to logits, or to the features of a head in float64."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..data.samples import check_plain
from ..models import Network, PixelNet
from ..models.base import Proves
from ..ops import exact as kernels
from .bounds import BYTE, INT16, INT32, largest, reach, rows
from .head import FrozenHead
from .stem import Stem

SIDED_BELOW = 0.6  # entries of `Sides`, as a share of all weights, up to which they are faster than the dense kernel


@dataclass(frozen=True, eq=False)
class FrozenLayer:
    """y[o] = max_i |x[i] - weight[o, i]| + bias[o], over the entries of `mask` alone.

    weight: (O, I) int16, or int32 where int16 might overflow; entries outside the mask hold the middle of their input's
    range, which never wins, so that the dense form is the same function. mask: (O, I) bool; bias: (O,) int32; low and
    high: (I,) int64, the range of each input. Raises ValueError for what cannot be evaluated without overflow.
    """

    weight: Tensor
    mask: Tensor
    bias: Tensor
    low: Tensor
    high: Tensor

    def __post_init__(self) -> None:
        if not self.mask.any(1).all():
            raise ValueError("a neuron has no entries, so its maximum is undefined")
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
        """Build the layer in int16 if that provably holds every value, else in int32; inputs are int64."""
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
        """Return start, index, weight and limit of all kept entries, neuron by neuron.

        start (O + 1,) int64, then index int32, weight and limit. The entries of neuron o are start[o] : start[o + 1],
        by descending limit, the largest |x - w| that is possible.
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

    def floored(self, dtype: torch.dtype) -> kernels.Sides:
        """Return the sides for inputs and outputs minus their lowest values, in a type that holds the inputs' range.

        An output is its floor, the least it can be, plus an excess: the largest of x - (w + floor) and (w - floor) - x,
        or 0. The excess varies by no more than the inputs do, so a type that holds the inputs' range holds it too. The
        type also holds each w ± floor minus the input's lowest value, since otherwise that side could never win.
        """
        neuron, start, middle, inputs, weight = self.sides
        floor = (self.range[0] - self.bias)[neuron.long()].repeat_interleave(start.diff())  # (K,)
        above = torch.arange(len(weight)) < middle.repeat_interleave(start.diff())
        shifted = weight.long() + torch.where(above, floor, -floor) - self.low[inputs.long()]
        if len(shifted) and not 0 <= int(shifted.min()) <= int(shifted.max()) <= torch.iinfo(dtype).max:
            raise AssertionError(f"weights of {shifted.min()} ... {shifted.max()} do not fit {dtype}")
        return kernels.Sides(neuron, start, middle, inputs, shifted.to(dtype))

    def __call__(self, x: Tensor) -> Tensor:
        """Map (I, B) to (O, B), feature-major, in the layer's integer type. For one image dense is faster."""
        x = x.to(self.weight.dtype)
        if x.shape[1] == 1 or len(self.sides.weight) > SIDED_BELOW * self.weight.numel():
            return kernels.dense(x, self.weight, self.bias)
        return kernels.sided(x, *self.sides, self.bias)


@dataclass(frozen=True, eq=False)
class FrozenNet(Network):
    """A network in integers, from 8-bit pixels to logits, or to the features of a head.

    shape: (C, H, W) of its images; stem: from pixels to the inputs of the first layer; lower, upper: uint8 (C, H, W),
    the range of each pixel (its domain); layers: see `FrozenLayer`; facts: plain JSON about how it was made; head: what
    the outputs of the last layer, its features, go through, or None. Then the logits are these outputs, negated, summed
    over the `count` neurons of each class if there are several.

    One level (1/255) of a pixel moves no input by more than `stem.steps`, hence no output of a layer, and no logit of a
    network without a head by more than `steps`: `steps` times the mean of a class's neurons is in units of the grid.
    """

    shape: tuple[int, int, int]
    stem: Stem
    lower: Tensor
    upper: Tensor
    layers: tuple[FrozenLayer, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)
    head: FrozenHead | None = None
    count: int = 1

    exact, resize = True, None  # no fields: see `Network`

    @property
    def class_names(self) -> tuple[str, ...] | None:  # type: ignore[override]
        """The classes in words, if its facts name them all."""
        names = self.facts.get("classes")
        fit = isinstance(names, list) and len(names) == self.classes and all(isinstance(name, str) for name in names)
        return tuple(names) if fit else None  # type: ignore[arg-type]

    def stated(self, key: str) -> str | None:
        accuracy = self.facts.get("accuracy")
        found = self.facts.get(key, accuracy.get(key) if isinstance(accuracy, dict) else None)
        return found if isinstance(found, str) else None

    def __repr__(self) -> str:
        widths = [self.layers[0].weight.shape[1], *(len(layer.bias) for layer in self.layers)]
        head = "" if self.head is None else f", head of {len(self.head.b1)}"
        head += "" if self.count == 1 else f", {self.count} a class"
        layers = " -> ".join(map(str, widths)) + head
        return f"FrozenNet(shape={self.shape}, k={self.k}, layers={layers}, sha256={self.sha256[:12]}…)"

    def __post_init__(self) -> None:
        """Check that the layers' ranges are those of the domain: pruning and the absence of overflow rest on them."""
        if self.classes < 2:
            raise ValueError("a network with one class has no margin: nothing could be certified")
        low, high = (self.stem(bound[None])[0].long() for bound in (self.lower, self.upper))
        for number, layer in enumerate(self.layers):
            if not (torch.equal(layer.low, low) and torch.equal(layer.high, high)):
                raise ValueError(f"layer {number} was made for inputs of other ranges: freeze the network again")
            low, high = layer.range
        if self.head is not None and self.head.w1.shape[1] != len(low):
            raise ValueError(f"the head takes {self.head.w1.shape[1]} features, the last layer has {len(low)}")
        if self.count > 1:
            if self.head is not None:
                raise ValueError("a head takes features as they are: no sums come before it")
            if len(low) % self.count:
                raise ValueError(f"{len(low)} neurons cannot be divided among classes of {self.count}")
            largest = max(int(self.summed(end[None]).abs().max()) for end in (low, high))
            if largest > INT32:
                raise ValueError(f"sums of {self.count} neurons reach {largest}, which 32 bits cannot hold")

    @property
    def k(self) -> int:
        """The pixels' grid has 2^k steps a level."""
        return self.stem.k

    @property
    def crop(self) -> int | None:
        """The side of the centre crop, or None."""
        return self.stem.crop

    @property
    def steps(self) -> int:
        """How many steps of the logits' grid make a level (with a head: of the features' grid)."""
        return self.stem.steps * self.count

    @property
    def classes(self) -> int:
        return len(self.layers[-1].bias) // self.count if self.head is None else len(self.head.b2)

    def summed(self, y: Tensor) -> Tensor:
        """Add up the outputs of the last layer (B, O) over the neurons of each class: (B, O / count)."""
        return y if self.count == 1 else y.unflatten(1, (-1, self.count)).sum(2)

    @cached_property
    def sha256(self) -> str:
        """The hash that certificates name: of the header and of all tensors, as they are in the file."""
        from .file import contents, digest

        return digest(*contents(self))

    def checksum(self, file: Path | None = None) -> str:
        """Return the sha256 that certificates name, too."""
        return self.sha256

    @property
    def device(self) -> torch.device:
        return self.lower.device

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
        return self.summed(negated).to(torch.int32) if self.head is None else self.head(-negated)

    def features(self, images: Tensor) -> Tensor:
        """Compute the outputs of the last integer layer, (B, F) int32, in grid units, of images uint8 (B, C, H, W)."""
        return -self._negated(images)

    def _negated(self, images: Tensor) -> Tensor:
        self.check_images(images)
        if len(images) > 1 and self._chain is not None:
            return self._many(images, self._chain)
        x = self.stem(images).T.contiguous()  # (I, B)
        for layer in self.layers:
            x = layer(x)
        return -x.T.to(torch.int32).contiguous()

    def _many(self, images: Tensor, chain: kernels.Chain) -> Tensor:
        """Run all layers at once; floors that were subtracted are added again at the end."""
        floored = self._floored is not None
        if self.stem.clip is None and self.stem.pool is None:  # the kernel takes pixels, and multiplies them by 2^k
            above = images - self.lower if floored and not self.whole_cube else images
            y = kernels.network(self.stem.cropped(above).flatten(1), self.k, chain)
        else:
            x = self.stem(images) - self.layers[0].low if floored else self.stem(images)
            y = kernels.network(x.to(chain.sides.weight.dtype), 0, chain)
        return y - self.layers[-1].range[0].int() if floored else y

    @cached_property
    def _chain(self) -> kernels.Chain | None:
        """Join all layers into one, in the narrowest sufficient type; None where dense layers are faster.

        This is the fastest way for more than one image, unless so many weights are left that dense layers win.
        """
        narrow = self._floored
        layers = [
            (layer.sides, layer.bias) if narrow is None else (layer.floored(narrow), torch.zeros_like(layer.bias))
            for layer in self.layers
        ]
        entries, weights = sum(len(each.weight) for each, _ in layers), sum(each.weight.numel() for each in self.layers)
        if len({each.weight.dtype for each, _ in layers}) > 1 or entries > SIDED_BELOW * weights:
            return None
        return kernels.chain(self.layers[0].weight.shape[1], layers)

    @cached_property
    def _floored(self) -> torch.dtype | None:
        """Return the type that holds all values minus their floors; None unless it is narrower than a layer's weights.

        The range of the first layer's inputs decides, because ranges do not grow from layer to layer.
        """
        span = int((self.layers[0].high - self.layers[0].low).max())
        if span <= BYTE:
            return torch.uint8
        wide = any(layer.weight.dtype == torch.int32 for layer in self.layers)
        return torch.int16 if wide and span <= INT16 else None

    @property
    def in_bytes(self) -> bool:
        """Whether batches of images run in 8 bits."""
        return self._floored == torch.uint8

    def from_bytes(self, images: Tensor) -> Tensor:
        return images

    def predict(self, x: Tensor) -> Tensor:
        return self(x).argmax(1)

    def prover(self, method: str) -> Proves:
        """Return the prover by integers, for all images of the domain, those between the 8-bit levels included."""
        from .certificate import ExactProver

        return ExactProver(self, method)

    @cached_property
    def floats(self) -> PixelNet:
        from .as_floats import as_floats

        return as_floats(self)

    def to_pixels(self, x: Tensor) -> Tensor:
        return x / 255

    def nearest(self, pixels: Tensor, x: Tensor, eps: Sequence[Fraction]) -> Tensor:
        levels = torch.tensor([int(255 * each) for each in eps], dtype=torch.int32)[:, None, None, None]
        tried = (pixels.double() * 255).round().int().clamp(x.int() - levels, x.int() + levels)
        return tried.clamp(self.lower.int(), self.upper.int()).to(torch.uint8)

    def check_images(self, images: Tensor) -> None:
        """Raise unless these are images that the network was frozen for."""
        check_plain(images, "images")
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
    """Hash an image uint8 (C, H, W): its shape, as in "1,28,28:", then its pixels."""
    shape = ",".join(str(side) for side in image.shape)
    return hashlib.sha256(f"{shape}:".encode() + image.contiguous().numpy().tobytes()).hexdigest()
