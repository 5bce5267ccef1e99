"""An exact network in floating point, for attacks, which need gradients. Their results are tested on the integers."""

import math

import torch
from torch import Tensor

from ..models import Composed
from ..nn import (
    CenterCrop,
    Clip,
    DistLinear,
    Flatten,
    Head,
    LipschitzModule,
    MeanPool,
    NearestClass,
    Normalize,
    Readout,
    ScaledLinear,
    Stack,
)
from .network import FrozenNet
from .stem import LEVELS

NARROWEST = 2.0**-19  # of a float `Clip`


@torch.no_grad()
def as_floats(network: FrozenNet) -> Composed:
    """Return the float32 network on the 0–1 intensity scale that is nearest to an exact one; in eval mode.

    Its logits are those of the exact network divided by 255 · steps (with a head: the same), up to float32's rounding.
    """
    stem, units = network.stem, LEVELS * float(network.stem.steps)
    layers: list[LipschitzModule] = [] if stem.crop is None else [CenterCrop(stem.crop)]
    low, high = 0.0, 1.0
    if stem.clip is not None:
        low, high = (end / (LEVELS << stem.k) for end in stem.clip)
        low = min(low, 1 - NARROWEST)
        high = max(high, low + NARROWEST)
        layers.append(Clip(low, high))  # to 0 ... 1, and back:
    layers.append(Normalize([-low / (high - low)] * network.shape[0], 1 / (high - low)))
    layers.append(Flatten() if stem.pool is None else MeanPool(stem.pool.sizes))
    *hidden, last = network.layers
    for layer in hidden if network.head is None else network.layers:
        own = DistLinear(layer.weight.shape[1], len(layer.weight), bias=True)
        assert own.bias is not None
        _fill(own.weight, layer.weight / units)
        _fill(own.bias, layer.bias / units)
        layers.append(own)
    readout: Readout
    if network.head is None:
        readout = nearest = NearestClass(last.weight.shape[1], network.classes, network.count)
        _fill(nearest.weight, last.weight / units)
        _fill(nearest.bias, last.bias / units)
    else:
        w1, b1, w2, b2 = network.head.tensors().values()
        readout = head = Head(w1.shape[1], w1.shape[0], len(b2))
        _fill_linear(head.hidden, w1 * units, b1)
        _fill_linear(head.output, w2, b2)
    return Composed(Stack(*layers), readout, network.shape).eval()


def _fill_linear(layer: ScaledLinear, weight: Tensor, bias: Tensor) -> None:
    _fill(layer.weight, weight * math.sqrt(layer.in_features))  # it is divided by that again
    _fill(layer.bias, bias)


def _fill(parameter: Tensor, values: Tensor) -> None:
    parameter.copy_(values)
