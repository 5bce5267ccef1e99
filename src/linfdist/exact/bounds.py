"""Intervals through integer dist layers, and lossless pruning. All numbers are int64, so nothing overflows."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

BYTE = 2**8 - 1
INT16 = 2**15 - 1
INT32 = 2**31 - 1
_CHUNK = 2**22  # entries of a layer that are looked at together


def near_far(low: Tensor, high: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return the least and the largest |x[i] - w[o, i]| over low <= x <= high.

    low, high (I,), weight (O, I) -> (O, I) each.
    """
    above, below = low - weight, weight - high
    return torch.maximum(above, below).clamp_min(0), torch.maximum(-below, -above)


def rows(weight: Tensor) -> Iterator[slice]:
    """Yield slices of the neurons, so that memory stays bounded on wide layers."""
    step = max(1, _CHUNK // max(1, weight.shape[1]))
    return (slice(start, start + step) for start in range(0, weight.shape[0], step))


def reach(low: Tensor, high: Tensor, weight: Tensor, mask: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """Bound the outputs max_i |x[i] - w[o, i]| + b[o] over the entries in `mask`: two tensors (O,) int64."""
    lowest, highest = [], []
    for part in rows(weight):
        near, far = near_far(low, high, weight[part].long())
        lowest.append(near.masked_fill_(~mask[part], -1).amax(1))
        highest.append(far.masked_fill_(~mask[part], -1).amax(1))
    return torch.cat(lowest) + bias, torch.cat(highest) + bias


def largest(low: Tensor, high: Tensor, weight: Tensor, mask: Tensor, bias: Tensor) -> int:
    """Return the largest magnitude of anything a layer computes with, over all inputs.

    It covers inputs, kept weights, x - w, |x - w|, the bias and the output. A type that holds it can evaluate the layer
    without overflow.

    Entries outside the mask do not count: in the dense form the middle of their input's range replaces them, and its
    differences are no larger than the inputs.
    """
    size = [low.abs().max(), high.abs().max(), bias.abs().max()]
    for part in rows(weight):
        kept, own = mask[part], weight[part].long()
        far = torch.maximum((low - own).abs(), (high - own).abs()).masked_fill_(~kept, 0)  # |x - w|, both signs
        size += [far.max(), own.abs().masked_fill_(~kept, 0).max(), (far.amax(1) + bias[part].abs()).max()]
    middle = (high - low).max()  # x - (middle of its range), with room for the rounding of the middle
    return max(int(each) for each in [*size, middle])


@dataclass(frozen=True)
class Entries:
    """One layer: y[o] = max over i in mask[o] of |x[i] - weight[o, i]|, + bias[o].

    weight (O, I) int64, mask (O, I) bool, bias (O,) int64.
    """

    weight: Tensor
    mask: Tensor
    bias: Tensor


def winners(low: Tensor, high: Tensor, weight: Tensor) -> Tensor:
    """Mark the entries that can be the maximum of their neuron for some low <= x <= high: (O, I) bool.

    An entry whose largest |x - w| does not exceed the largest of all smallest |x - w| never beats the entry that
    attains the latter. That one stays, and with it every maximum.
    """
    mask = torch.empty(weight.shape, dtype=torch.bool)
    for part in rows(weight):
        near, far = near_far(low, high, weight[part])
        floor, holder = near.max(1, keepdim=True)
        mask[part] = (far > floor).scatter_(1, holder, True)
    return mask


def prune(weights: Sequence[tuple[Tensor, Tensor]], low: Tensor, high: Tensor) -> list[Entries]:
    """Prune the layers (weight (O, I), bias (O,)), int64, of a network whose inputs lie in low <= x <= high.

    Forwards: entries that cannot win are dropped, with the reachable range of every neuron as the domain of the next
    layer, and inputs that are constant are replaced by one of them. Then backwards: neurons that no later entry looks
    at are removed. One sweep each way is enough: a removed neuron had no part in any range that is still needed.
    """
    layers: list[Entries] = []
    for number, (weight, bias) in enumerate(weights):
        layer = Entries(weight, winners(low, high, weight), bias)
        layers.append(layer if number == 0 else _one_constant(layer, low, high))
        low, high = reach(low, high, layer.weight, layer.mask, layer.bias)
    for number in range(len(layers) - 1, 0, -1):
        used = layers[number].mask.any(0)  # (I,)
        after, before = layers[number], layers[number - 1]
        layers[number] = replace(after, weight=after.weight[:, used], mask=after.mask[:, used])
        layers[number - 1] = Entries(before.weight[used], before.mask[used], before.bias[used])
    return layers


def _one_constant(layer: Entries, low: Tensor, high: Tensor) -> Entries:
    """Replace all constant inputs by the first: with the right weight, |c - w| equals any other constant.

    A neuron keeps at most one constant entry: a second one cannot exceed the floor that the larger of both sets.
    """
    constant = low == high  # (I,)
    if not constant.any():
        return layer
    first = int(constant.nonzero()[0])
    neuron, column = (layer.mask & constant).nonzero(as_tuple=True)
    value = (low[column] - layer.weight[neuron, column]).abs()
    weight, mask = layer.weight.clone(), layer.mask & ~constant
    # the smaller of the two weights with that distance, c - v and c + v, whichever is nearer to zero
    weight[neuron, first] = torch.where(low[first] >= 0, low[first] - value, low[first] + value)
    mask[neuron, first] = True
    return Entries(weight, mask, layer.bias)
