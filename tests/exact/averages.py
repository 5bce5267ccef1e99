"""Networks that average and clip, and what their frozen forms must compute, in Python's own whole numbers."""

import math
from fractions import Fraction
from itertools import product

import torch
from hypothesis import strategies as st
from torch import Tensor

from linfdist.exact import FrozenNet
from linfdist.nn import CenterCrop, Clip, DistLinear, MeanPool, MeanShift, NearestClass, Normalize

Number = int | Fraction

clips = st.one_of(st.none(), st.tuples(st.integers(0, 14), st.integers(1, 6)).map(lambda c: (c[0] / 20, sum(c) / 20)))
options = st.fixed_dictionaries(
    {
        "per_class": st.integers(1, 4),
        "pool": st.lists(st.sampled_from([1, 2, 3]), unique=True, max_size=3),
        "clip": clips,
        "crop": st.sampled_from([None, 3]),
    }
)
EVERYTHING = {"per_class": 3, "pool": [2, 1], "clip": (0.3, 0.7), "crop": 3}


def blocks(image: list, size: int) -> list:
    """The pixels of each block of an image given as channels of rows, in the order of the blocks' means."""
    found = []
    for channel in image:
        for top, left in product(range(len(channel) // size), range(len(channel[0]) // size)):
            rows = channel[top * size : (top + 1) * size]
            found.append([value for row in rows for value in row[left * size : (left + 1) * size]])
    return found


def middle(image: list, size: int | None) -> list:
    if size is None:
        return image
    top, left = (len(image[0]) - size) // 2, (len(image[0][0]) - size) // 2
    return [[row[left : left + size] for row in channel[top : top + size]] for channel in image]


def whole_logits(frozen: FrozenNet, levels: list) -> list[Number]:
    """The logits of one image, channels of rows of levels, by the definition in docs/format.md. Between the levels its
    pixels are fractions.
    """
    stem = frozen.stem
    image = [[[value * 2**stem.k for value in row] for row in channel] for channel in middle(levels, stem.crop)]
    if stem.clip is not None:
        image = [
            [[min(max(value, stem.clip[0]), stem.clip[1]) for value in row] for row in channel] for channel in image
        ]
    if stem.pool is None:
        x = [block[0] for block in blocks(image, 1)]
    else:
        sizes, steps = stem.pool.sizes, stem.pool.steps
        x = [sum(block) * Fraction(steps, s * s) for s in sizes for block in blocks(image, s)]
    for layer in frozen.layers:
        rows = zip(layer.weight.tolist(), layer.mask.tolist(), layer.bias.tolist(), strict=True)
        x = [
            max(abs(value - w) for value, w, kept in zip(x, weights, mask, strict=True) if kept) + bias
            for weights, mask, bias in rows
        ]
    return [-sum(x[c : c + frozen.count]) for c in range(0, len(x), frozen.count)]


def true_logits(net, image: Tensor) -> list[Fraction]:
    """The float network in exact arithmetic, times what the frozen one is scaled by."""
    scale, x = Fraction(1), []
    values = [[[Fraction(int(pixel), 255) for pixel in row] for row in channel] for channel in image.tolist()]
    for layer in [*net.body, net.last]:
        if isinstance(layer, CenterCrop):
            values = middle(values, layer.size)
        elif isinstance(layer, Clip):
            low, span = Fraction(layer.low.item()), Fraction((layer.high - layer.low).item())
            values = [
                [[min(max((pixel - low) / span, 0), 1) for pixel in row] for row in channel] for channel in values
            ]
            scale *= span
        elif isinstance(layer, Normalize):
            std = Fraction(layer.std.item())
            means = map(Fraction, layer.mean.flatten().tolist())
            values = [
                [[(pixel - mean) / std for pixel in row] for row in channel]
                for channel, mean in zip(values, means, strict=True)
            ]
            scale *= std
            x = [pixel for channel in values for row in channel for pixel in row]
        elif isinstance(layer, MeanPool):
            x = [sum(block) / Fraction(s * s) for s in layer.sizes for block in blocks(values, s)]
        elif isinstance(layer, DistLinear | NearestClass):
            bias = [0.0] * len(layer.weight) if layer.bias is None else layer.bias.tolist()
            x = [
                max(abs(value - Fraction(w)) for value, w in zip(x, row, strict=True)) + Fraction(b)
                for row, b in zip(layer.weight.tolist(), bias, strict=True)
            ]
        elif isinstance(layer, MeanShift):
            x = [value - Fraction(mean) for value, mean in zip(x, layer.running_mean.tolist(), strict=True)]
    n = net.last.per_class
    return [-sum(x[c : c + n]) / n * scale for c in range(0, len(x), n)]


def every_image(lower: Tensor, upper: Tensor) -> Tensor:
    """All images of a domain, which had better be small: (N, C, H, W) uint8."""
    ends = zip(lower.flatten().tolist(), upper.flatten().tolist(), strict=True)
    values = list(product(*(range(low, high + 1) for low, high in ends)))
    assert len(values) == math.prod((upper.int() - lower.int() + 1).flatten().tolist())
    return torch.tensor(values, dtype=torch.uint8).reshape(-1, *lower.shape)
