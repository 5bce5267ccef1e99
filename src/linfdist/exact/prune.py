"""Leaving out what can never matter: the function on every image of the domain stays the same."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from .bounds import near_far, reach, rows


@dataclass(frozen=True)
class Entries:
    """One layer: y[o] = max over i in mask[o] of |x[i] - weight[o, i]|, + bias[o].

    weight (O, I) int64, mask (O, I) bool, bias (O,) int64.
    """

    weight: Tensor
    mask: Tensor
    bias: Tensor


def winners(low: Tensor, high: Tensor, weight: Tensor) -> Tensor:
    """Which entries can be the maximum of their neuron for some low <= x <= high: (O, I) bool.

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
    at are removed. One sweep each is all: a neuron that is gone had no part in any range that is still needed.
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
    """Let the first constant input stand for all: |c - w| is any other constant with the right weight.

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
