"""Gradients that see more than one input of a neuron: the values of p = inf, the slopes of a finite p."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from ..models import PixelNet


def surrogate(network: PixelNet, x: Tensor, p: float) -> Tensor:
    """The logits (B, classes) of p = inf, with the gradient of distances at p, layer by layer: see `PixelNet`."""
    return network(x) if p == math.inf else network.surrogate(x, p)


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
        pixels = x.to(self.network.any_tensor.dtype)
        differentiated = x.requires_grad and torch.is_grad_enabled()
        return (surrogate(self.network, pixels, self.p) if differentiated else self.network(pixels)).to(x.dtype)
