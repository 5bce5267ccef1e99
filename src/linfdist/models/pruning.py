"""Leaving out weights that can never be the largest term of a neuron: docs/certificates.md has the proof."""

import copy
import math

import torch
from torch import Tensor

from ..nn import (
    Box,
    CenterCrop,
    Clip,
    Contract,
    DistConv2d,
    DistLinear,
    Flatten,
    Handlers,
    MeanPool,
    MeanShift,
    MirrorPairs,
    NearestClass,
    Normalize,
    View,
)
from .base import PixelNet
from .mean import MeanLogits

WIDER = 2.0**-20  # of the largest value: by how much domains are widened, against sums in another order
MARGIN = 1 + 2.0**-40  # of the larger term: far more than float64 loses when terms are compared
FLOOR = 2.0**-40  # the larger term is at least that: far above what flushing denormal numbers can move
# Layers that map a box within another one to a box within that one's, but for the order of sums.
_INCLUSIVE = frozenset(
    {CenterCrop, Clip, DistConv2d, DistLinear, Flatten, MeanPool, MeanShift, MirrorPairs, Normalize, View}
)


@torch.no_grad()
def prune(network: PixelNet) -> PixelNet:
    """Return a network with the bits of this one at p = inf, for images of [0, 1] and for boxes of such images.

    Logits, bounds of boxes, rounding errors and proved radii are the same. Weights of dist layers that can never be the
    largest term |x − w| of their neuron are replaced by one value per input, so that a packed file need not hold them.
    Convolutions, heads and layers of other packages stay as they are, and so do all layers above the latter.

    Outside of [0, 1] and at finite p it is another network: there, every weight counts. Pruning it again changes
    nothing. This network must be in eval mode, in float32 or float64.
    """
    if any(module.training for module in network.modules()):
        raise ValueError("a network is pruned for its use at p = inf in eval mode: call network.eval() first")
    if (dtype := network.any_tensor.dtype) not in (torch.float32, torch.float64):
        raise TypeError(f"only networks in float32 or float64 can be pruned, and this one is in {dtype}")
    places = [each.data_ptr() for _, each in network.named_parameters(remove_duplicate=False) if each.numel()]
    if len(set(places)) < len(places):
        raise ValueError("a network whose layers share weights cannot be pruned: one may need what the other does not")
    pruned = copy.deepcopy(network)
    pruned._pruned, pruned._file_sha256 = True, None
    _prune(pruned)
    return pruned


def _prune(network: PixelNet) -> None:
    box = network.all_images
    for layer in network.body:
        drop_idle(layer, box)
        if type(layer) not in _INCLUSIVE:
            return
        box = _wider(layer.forward_box(box))
    drop_idle(network.readout, box)


def _wider(box: Box) -> Box:
    more = WIDER * torch.maximum(box.lower.abs().max(), box.upper.abs().max())
    return Box(box.lower - more, box.upper + more)


def _nothing(module: Contract, box: Box) -> None:
    pass


drop_idle: Handlers[[Box], None] = Handlers("linfdist.models.pruning.drop_idle", "cannot be pruned", _nothing)
"""drop_idle(layer, box) replaces weights of a layer, or of a readout, that cannot matter for inputs of the box
(1, *shape), nor for boxes within it, at p = inf; the default leaves the layer as it is."""


@drop_idle.register(MeanLogits)
def _(readout: MeanLogits, box: Box) -> None:
    for member in readout.networks:  # views copy pixels: members see images of [0, 1] too
        _prune(member)


@drop_idle.register(DistLinear, NearestClass)
def _(layer: DistLinear | NearestClass, box: Box) -> None:
    if box.lower.dim() == 2 and all(side.isfinite().all() for side in box):
        layer.weight.copy_(_pruned(layer.weight, box.lower[0].double(), box.upper[0].double()))


def _pruned(weight: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Replace weights (O, I) that cannot be the largest term for any input between low and high (I), float64.

    What takes their place is a multiple of a step with which 16 bits hold all weights. The largest |weight|, and those
    that flushing denormal numbers depends on, stay: bounds of the rounding need them.
    """
    own = weight.double()
    sizes = own.abs()
    most = float(sizes.max())
    nearest = torch.maximum(low - own, own - high)
    near, holder = nearest.max(1, keepdim=True)  # (O, 1): no distance is ever smaller, and this weight is why
    step = max(2.0 ** (math.frexp(most)[1] - 14), FLOOR)
    limit = max(most // step - 1, 0.0) * step
    value = ((low + high) / 2 / step).round() * step + 0.0  # -0.0 would be another one
    value = value.clamp(-limit, limit)  # (I,)
    idle = _idle(own, low, high, near) & _idle(value, low, high, near)
    idle &= (sizes < most) & ((own == 0) | (sizes >= FLOOR))
    return value.to(weight.dtype).where(idle.scatter_(1, holder, False), weight)


def _idle(weight: Tensor, low: Tensor, high: Tensor, near: Tensor) -> Tensor:
    """Return whether |x − weight| is always smaller than near, with room to spare: (O, I)."""
    return (torch.maximum(high - weight, weight - low) * MARGIN < near) & (near >= FLOOR)
