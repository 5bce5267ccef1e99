"""The certificate of Fact 3.6: a 1-Lipschitz network cannot change its mind within half its margin."""

import math
from dataclasses import dataclass
from fractions import Fraction

import torch
from torch import Tensor

from ..models import DistNet, PixelNet
from .rounding import rounding_error


@dataclass(frozen=True)
class Margin:
    """What is proved of a batch of images.

    prediction: (B,) int64; radius: (B,) float64, in pixels: the prediction is the same on the open ball. Radii are
    rounded down, and 0 where nothing is proved.
    """

    prediction: Tensor
    radius: Tensor

    def certified(self, eps: Fraction) -> Tensor:
        """Where the prediction is proved to be constant on the closed eps-ball. (B,) bool"""
        above = float(eps)
        if Fraction(above) < eps:
            above = math.nextafter(above, math.inf)
        return self.radius > above


@torch.no_grad()
def margin(network: PixelNet, x: Tensor) -> Margin:
    """Certified radii of images x (B, C, H, W) in [0, 1], by one forward pass: (margin - 4E) / 2L.

    L is the network's Lipschitz constant in pixels. The margin is that of the float32 network as executed; E bounds the
    rounding of one logit (`rounding_error`) and enters for both logits, at x and at the perturbed image.
    """
    if type(network) is not DistNet:  # a subclass may compute anything
        raise TypeError(f"the margin is a certificate for DistNet only, not for {type(network).__name__}")
    if any(module.training for module in network.modules()):
        raise ValueError("a network in training mode cannot be certified: call .eval() first")
    if not ((x >= 0) & (x <= 1)).all():  # NaN fails too
        raise ValueError("pixels must lie in [0, 1]")
    z = network(x).double()  # exact in double
    if z.shape[1] < 2:
        raise ValueError("a network with one class has no margin")
    best = z.topk(2, dim=1).values
    gap = best[:, 0] - best[:, 1]  # rounded once, by 2^-53
    slack = 4 * rounding_error(network) * (1 + 2**-50)
    radius = (gap * (1 - 2**-50) - slack) / (2 * network.lipschitz) * (1 - 2**-50)
    proved = (radius > 0) & z.isfinite().all(1)  # NaN and overflow certify nothing
    return Margin(z.argmax(1), torch.where(proved, radius, 0.0))
