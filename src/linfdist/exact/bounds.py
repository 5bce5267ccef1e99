"""Intervals through integer dist layers. Everything is int64 here, where nothing that fits 32 bits can overflow."""

from collections.abc import Iterator

import torch
from torch import Tensor

BYTE = 2**8 - 1
INT16 = 2**15 - 1
INT32 = 2**31 - 1
_CHUNK = 2**22  # entries of a layer that are looked at together


def near_far(low: Tensor, high: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """The smallest and the largest |x[i] - w[o, i]| over low <= x <= high: low, high (I,), weight (O, I) -> (O, I)."""
    above, below = low - weight, weight - high
    return torch.maximum(above, below).clamp_min(0), torch.maximum(-below, -above)


def rows(weight: Tensor) -> Iterator[slice]:
    """Slices of the neurons, so that memory stays bounded on wide layers."""
    step = max(1, _CHUNK // max(1, weight.shape[1]))
    return (slice(start, start + step) for start in range(0, weight.shape[0], step))


def reach(low: Tensor, high: Tensor, weight: Tensor, mask: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """What the outputs max_i |x[i] - w[o, i]| + b[o] over the entries in `mask` can be: two tensors (O,) int64."""
    lowest, highest = [], []
    for part in rows(weight):
        near, far = near_far(low, high, weight[part].long())
        lowest.append(near.masked_fill_(~mask[part], -1).amax(1))
        highest.append(far.masked_fill_(~mask[part], -1).amax(1))
    return torch.cat(lowest) + bias, torch.cat(highest) + bias


def largest(low: Tensor, high: Tensor, weight: Tensor, mask: Tensor, bias: Tensor) -> int:
    """The largest magnitude of anything a layer computes with, over all inputs: inputs, kept weights, x - w, |x - w|,
    the bias and the output. A type that holds it can evaluate the layer without overflow.

    Entries that are left out do not count: in the dense form the middle of their input's range stands for them, and
    its differences are no larger than the inputs.
    """
    size = [low.abs().max(), high.abs().max(), bias.abs().max()]
    for part in rows(weight):
        kept, own = mask[part], weight[part].long()
        far = torch.maximum((low - own).abs(), (high - own).abs()).masked_fill_(~kept, 0)  # |x - w|, both signs
        size += [far.max(), own.abs().masked_fill_(~kept, 0).max(), (far.amax(1) + bias[part].abs()).max()]
    middle = (high - low).max()  # x - (middle of its range), with room for the rounding of the middle
    return max(int(each) for each in [*size, middle])
