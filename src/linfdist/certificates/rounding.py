"""How far the network as executed in floating point can be from the network in exact arithmetic."""

import math
from fractions import Fraction

import torch
from torch import Tensor

from ..models import DistNet
from ..nn import CenterCrop, DistConv2d, DistLinear, Flatten, LipschitzModule, MeanShift, Normalize


def rounding_error(network: DistNet) -> float:
    """E with |computed logit - exact logit| <= E for every image in [0, 1]; infinity if some value could overflow.

    Every operation of a dist net - the two of `Normalize`, the subtraction of a dist layer, the shift, the bias - is
    rounded once, by at most u · |result| with u = 2^-24 (float32); |·| and max are exact. All layers after the
    normalisation are 1-Lipschitz in ℓ∞, so these errors add up and are never amplified. With bounds M of all
    intermediate values, E = u · Σ M over the operations, rounded up generously (a factor 1 + 2^-10 covers the second
    order and the summation).
    """
    unit = Fraction(torch.finfo(network.last.weight.dtype).eps) / 2
    size, error = Fraction(1), Fraction(0)  # |pixels| <= 1
    for layer in [*network.body, network.last]:
        size, operations = _grow(layer, size)
        error += operations * unit * size
    if 2 * size > Fraction(torch.finfo(network.last.weight.dtype).max):
        return math.inf  # an intermediate value might overflow
    return float(error * Fraction(1025, 1024)) * (1 + 2**-50)


def _grow(layer: LipschitzModule, size: Fraction) -> tuple[Fraction, int]:
    """A bound of the layer's (intermediate) values, given one of its inputs, and its number of rounded operations."""
    if isinstance(layer, Normalize):
        grown = (size + _largest(layer.mean)) / Fraction(float(layer.std))
        return max(grown, size + _largest(layer.mean)), 2
    if isinstance(layer, MeanShift):
        return size + _largest(layer.running_mean), 1
    if isinstance(layer, DistLinear | DistConv2d):
        bias = _largest(layer.bias) if layer.bias is not None else Fraction(0)
        return size + _largest(layer.weight) + bias, 1 + (layer.bias is not None)
    if isinstance(layer, Flatten | CenterCrop):
        return size, 0
    raise TypeError(f"the rounding of {type(layer).__name__} is not known, so nothing can be certified with it")


def _largest(tensor: Tensor) -> Fraction:
    largest = float(tensor.detach().abs().max()) if tensor.numel() else 0.0
    if not math.isfinite(largest):
        raise ValueError("the network has weights that are not finite, so nothing can be certified with it")
    return Fraction(largest)
