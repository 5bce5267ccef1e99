"""Gradients that see more than one input of a neuron: the values of p = inf, the slopes of a finite p."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from ..models import PixelNet
from ..nn import LipschitzModule, Readout


def surrogate(network: PixelNet, x: Tensor, p: float) -> Tensor:
    """The logits (B, classes) of p = inf, bit for bit, with the gradient of distances at p, layer by layer.

    At p = inf the gradient of a distance follows the farthest coordinate alone. To make a distance smaller, though, all
    coordinates that are nearly as far must move too; those of finite p have weight (|x - w| / y)^(p - 1). Taken in
    each layer at the values of p = inf, such gradients stay useful down to p = 8, where those of the network as a whole
    at that p are those of another network.
    """
    if p == math.inf:
        return network(x)
    if type(network).forward is not PixelNet.forward:  # it may be more than the readout of its body
        return _straight(network(x.detach()), network(x, p))
    network.check_images(x)
    for layer in network.body:
        x = _through(layer, x, p)
    return _through(network.readout, x, p)


def _through(layer: LipschitzModule | Readout, x: Tensor, p: float) -> Tensor:
    return _straight(layer(x.detach()), layer(x, p)) if layer.holds_distances else layer(x)


def _straight(value: Tensor, smooth: Tensor) -> Tensor:
    """The first's value with the second's gradient."""
    return _StraightThrough.apply(value, smooth)


class _StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, value: Tensor, smooth: Tensor) -> Tensor:
        return value.view_as(value)

    @staticmethod
    def backward(ctx: object, *grads: Tensor) -> tuple[None, Tensor]:
        return None, grads[0]


def gradient(
    network: PixelNet, images: Tensor, loss: Callable[[Tensor], Tensor], p: float = math.inf
) -> tuple[Tensor, Tensor]:
    """The logits (B, classes) at p = inf, and the gradient of loss(logits), a number, for the images (B, C, H, W).

    Works under `torch.no_grad` too, and touches no `.grad`.
    """
    with torch.enable_grad():
        pixels = images.clone().requires_grad_()
        logits = surrogate(network, pixels, p)
        (slope,) = torch.autograd.grad(loss(logits), pixels)
    return logits.detach(), slope


class Surrogate(nn.Module):
    """A network with surrogate gradients, for attacks that differentiate it themselves."""

    def __init__(self, network: PixelNet, p: float) -> None:
        super().__init__()
        self.network, self.p = network, p
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        """Logits in the precision of x, computed in the network's."""
        pixels = x.to(next(self.network.parameters()).dtype)
        differentiated = x.requires_grad and torch.is_grad_enabled()
        return (surrogate(self.network, pixels, self.p) if differentiated else self.network(pixels)).to(x.dtype)
