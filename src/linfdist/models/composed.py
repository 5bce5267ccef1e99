"""A network of one's own layers: whatever declares the contract can be certified, attacked and evaluated."""

import os
from collections.abc import Sequence
from typing import Any

import torch

from ..nn import Box, Contract, DistLinear, Handlers, LipschitzModule, Logits, NearestClass, Readout, Stack
from .base import Network, PixelNet


class Composed(PixelNet):
    """A body and a readout, put together: for networks that have no class of their own.

    body: layers from pixels (B, C, H, W) to features (B, F); readout: from features to logits; shape: (C, H, W) of the
    images. It cannot be saved, because it has no configuration.
    """

    def __init__(self, body: Stack, readout: Readout, shape: Sequence[int]) -> None:
        super().__init__((shape[0], shape[1], shape[2]), None)
        self.body, self._readout, self.config = body, readout, {}
        self.training = body.training

    @property
    def readout(self) -> Readout:
        return self._readout


def _itself(module: Contract, box: Box) -> Contract:
    return module


with_cached_lists: Handlers[[Box], Any] = Handlers(
    "linfdist.models.composed.with_cached_lists", "has no cached lists", _itself
)
"""with_cached_lists(layer, box) is a layer, or a readout, with the bits of this one at p = inf for inputs of the box
(1, *shape), faster for a few of them; the default is the layer itself.

It may keep what depends on the tensors, which must not change any more, and has no gradients.
"""


@with_cached_lists.register(DistLinear, NearestClass)
def _(layer: DistLinear | NearestClass, box: Box) -> Contract:
    return layer.with_lists(box)


def narrowed(network: PixelNet) -> PixelNet:
    """A network with the bits of this one for images of [0, 1], faster for a few of them.

    This one must be in eval mode. Both have the same tensors, which must not change any more: see
    `with_cached_lists`.
    """
    blank = network.any_tensor.new_zeros(1, *network.shape)
    box, layers = Box(blank, torch.ones_like(blank)), []
    for layer in network.body:
        layers.append(with_cached_lists(layer, box))
        box = layer.forward_box(box)
    found = Composed(Stack(*layers), with_cached_lists(network.readout, box), network.shape)
    found.size = network.size
    return found.eval()


def as_network(model: object, shape: Sequence[int]) -> Network:
    """Turn what can be certified into a network for images of this shape (C, H, W).

    A network is returned as it is. The outputs of a layer, such as a `Stack`, are taken for logits. TypeError for
    everything else: nothing is known of its Lipschitz constant, nor of its rounding.
    """
    if isinstance(model, Network):
        return model
    if isinstance(model, str | os.PathLike):
        raise TypeError(f"{os.fspath(model)!r} is the name of a network: load it first, with linfdist.load")
    if not isinstance(model, LipschitzModule):
        raise TypeError(
            f"a {type(model).__name__} cannot be certified, because it declares no Lipschitz constant: take a network "
            "of linfdist.models, or put layers of linfdist.nn into a linfdist.nn.Stack"
        )
    body = model if isinstance(model, Stack) else _alone(model)
    foreign = [type(layer).__name__ for layer in body if not isinstance(layer, LipschitzModule)]
    if foreign:
        raise TypeError(
            f"the stack holds {', '.join(foreign)}, of whose Lipschitz constant and rounding nothing is known: "
            "nothing can be certified with it"
        )
    if len(shape) != 3:
        raise ValueError(f"need images (B, C, H, W), got images of shape {tuple(shape)}")
    outputs = body.output_shape(tuple(shape))
    if len(outputs) != 1:
        raise ValueError(f"the layers give outputs of shape {outputs} per image: end with logits (classes,)")
    return Composed(body, Logits(outputs[0]).train(body.training), shape)


def _alone(layer: LipschitzModule) -> Stack:
    """A stack of one layer, in the mode that the layer is in; the layer itself and its parts are left as they are."""
    stack = Stack(layer)
    stack.training = stack.layers.training = layer.training
    return stack
