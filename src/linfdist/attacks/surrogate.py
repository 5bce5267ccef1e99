"""Gradients that see more than one input of a neuron: the values of p = inf, the slopes of a finite p."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from ..models import PixelNet
from ..models.mean import MeanLogits
from ..nn import Handlers, LipschitzModule, Readout, Stack


def straight_through(value: Tensor, smooth: Tensor) -> Tensor:
    """Return the value of the first, bit for bit, with the gradient of the second."""
    return _StraightThrough.apply(value, smooth)


class _StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, value: Tensor, smooth: Tensor) -> Tensor:
        return value.view_as(value)

    @staticmethod
    def backward(ctx: object, *grads: Tensor) -> tuple[None, Tensor]:
        return None, grads[0]


def _by_itself(part: LipschitzModule | Readout, x: Tensor, p: float) -> Tensor:
    return straight_through(part(x.detach()), part(x, p)) if part.holds_distances else part(x)


surrogate_part: Handlers[[Tensor, float], Tensor] = Handlers(
    "linfdist.attacks.surrogate.surrogate_part", "has no surrogate gradient", _by_itself
)
"""surrogate_part(layer, x, p) computes the values of p = inf of a layer, or of a readout, bit for bit, with gradients
of distances at a finite p.

The default is right for every class. One that is made of others hands this on to them, so that each gets its gradient
at the values of p = inf.
"""


@surrogate_part.register(Stack)
def _(stack: Stack, x: Tensor, p: float) -> Tensor:
    for layer in stack:
        x = surrogate_part(layer, x, p)
    return x


@surrogate_part.register(MeanLogits)
def _(readout: MeanLogits, x: Tensor, p: float) -> Tensor:
    pairs = readout.pairs(x.unflatten(1, readout.shape))
    return readout.mean_of(surrogate(member, image, p) for member, image in pairs)


def surrogate(network: PixelNet, x: Tensor, p: float) -> Tensor:
    """Compute the logits (B, classes) of p = inf, bit for bit, with the gradient of distances at p, layer by layer.

    At p = inf the gradient of a distance follows the farthest coordinate alone. To make a distance smaller, though, all
    coordinates that are nearly as far must move too; those of finite p have weight (|x - w| / y)^(p - 1). Evaluated in
    each layer at the values of p = inf, such gradients stay useful down to p = 8. The gradients of the whole network at
    such a p belong to another function.
    """
    if p == math.inf:
        return network(x)
    if type(network).forward is not PixelNet.forward:  # it may be more than the readout of its body
        return straight_through(network(x.detach()), network(x, p))
    network.check_images(x)
    return surrogate_part(network.readout, surrogate_part(network.body, x, p), p)


def gradient(
    network: PixelNet, images: Tensor, loss: Callable[[Tensor], Tensor], p: float = math.inf
) -> tuple[Tensor, Tensor]:
    """Return the logits (B, classes) at p = inf, and the gradient of loss(logits), a number, for images (B, C, H, W).

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
        pixels = x.to(self.network.any_tensor.dtype)
        differentiated = x.requires_grad and torch.is_grad_enabled()
        return (surrogate(self.network, pixels, self.p) if differentiated else self.network(pixels)).to(x.dtype)
