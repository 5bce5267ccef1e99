"""Interval bounds (IBP): boxes of pixels and of layers' outputs, with slack for proofs, without it for training."""

from collections.abc import Iterable

import torch
from torch import Tensor

from ..nn import Box, LipschitzModule
from ..nn.base import Handlers


def ball(x: Tensor, eps: Tensor) -> Box:
    """Return a box that holds every image x′ of [0, 1], in x's precision, with |x′ − x| <= eps in exact arithmetic.

    x: float32 or float64 in [0, 1]; eps: float64 >= 0, broadcastable to x. Only eps must be rounded up to x's
    precision: x′ <= x + eps is a float, and rounding is monotone, so x′ is at most the rounded sum as well.
    """
    near = eps.to(x.dtype)
    reach = torch.where(near < eps, torch.nextafter(near, torch.full_like(near, torch.inf)), near)
    return Box((x - reach).clamp_(0.0, 1.0), (x + reach).clamp_(0.0, 1.0))


def bare_ball(x: Tensor, eps: float) -> Box:
    """Return the ball of radius eps around x, within [0, 1], without slack: for training, which proves nothing."""
    return Box((x - eps).clamp(min=0.0), (x + eps).clamp(max=1.0))


def _with_slack(layer: LipschitzModule, box: Box) -> Box:
    return layer.forward_box(box)


bare_box: Handlers[[Box], Box] = Handlers("linfdist.bounds.bare_box", "has no bounds", _with_slack)
"""bare_box(layer, box) bounds a layer as its `forward_box` does, but without slack: for training, which proves nothing.

By default it is `forward_box`, for layers whose bounds need no slack, or that nobody trains on boxes.
"""

relaxation: Handlers[[Box], tuple[Tensor, Tensor]] = Handlers("linfdist.bounds.relaxation", "has no linear relaxation")
"""relaxation(layer, box) gives slope and height of a band: over the box each output lies between slope · x and
slope · x + height. It has no slack for rounding in x: proofs add that.

A layer for which it is registered is nonlinear: smaller boxes of its inputs give better bounds of all kinds.
"""


def nonlinear(layer: LipschitzModule) -> bool:
    """Return whether linear bounds use a relaxation of the layer."""
    return layer in relaxation


def boxes(layers: Iterable[LipschitzModule], box: Box, slack: bool = True) -> list[Box]:
    """Bound the inputs of each layer and the outputs of the last one by intervals (IBP)."""
    found = [box]
    for layer in layers:
        found.append(layer.forward_box(found[-1]) if slack else bare_box(layer, found[-1]))
    return found
