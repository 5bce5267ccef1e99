"""How far the network as executed in floating point can be from the network in exact arithmetic."""

import math
from collections.abc import Iterable
from fractions import Fraction

import torch
from torch import Tensor

from ..models import DistNet, PixelNet
from ..nn import CenterCrop, DistConv2d, DistLinear, Flatten, LipschitzModule, MeanShift, Normalize
from ..numbers import round_down as round_down
from ..numbers import round_up

OWN_UNIT = 2.0**-53  # of float64, in which certificates are computed
UP, DOWN = 1 + 2.0**-50, 1 - 2.0**-50  # a factor that outweighs a few roundings of float64


def rounding_error(network: PixelNet) -> float:
    """E with |computed − exact| <= E for all images of [0, 1]: of the logits of a `DistNet`, of the features of others.

    Every operation of a dist net - the two of `Normalize`, the subtraction of a dist layer, the shift, the bias - is
    rounded once, by at most u · |result| with u = 2^-24 (float32); |·| and max are exact. A layer passes the error of
    its input on, times its Lipschitz constant in ℓ∞: 1 for all but the normalisation. With bounds M of all intermediate
    values, E = u · Σ M over the operations, rounded up generously (a factor 1 + 2^-10 covers the second order and the
    summation; as all M >= 1, it also covers denormals, flushed to zero or not). Infinity if some value could overflow.
    """
    return error_of([*network.body, network.last] if isinstance(network, DistNet) else network.body)


def error_of(layers: Iterable[LipschitzModule]) -> float:
    """E of `rounding_error` for layers one after the other."""
    size, error = Fraction(1), Fraction(0)  # |pixels| <= 1
    unit, limit = 0.0, math.inf
    for layer in layers:
        for tensor in [*layer.parameters(), *layer.buffers()]:
            unit, limit = torch.finfo(tensor.dtype).eps / 2, torch.finfo(tensor.dtype).max
        size, operations = _grow(layer, size)
        error = error * Fraction(layer.lipschitz) + operations * Fraction(unit) * size
    if 2 * size > Fraction(limit):
        return math.inf  # an intermediate value might overflow
    return round_up(error * Fraction(1025, 1024))


def _grow(layer: LipschitzModule, size: Fraction) -> tuple[Fraction, int]:
    """A bound of the layer's (intermediate) values, given one of its inputs, and its number of rounded operations."""
    if isinstance(layer, Normalize):
        shifted = size + largest(layer.mean)
        return max(shifted / Fraction(layer.std.item()), shifted), 2
    if isinstance(layer, MeanShift):
        return size + largest(layer.running_mean), 1
    if isinstance(layer, DistLinear | DistConv2d):
        bias = largest(layer.bias) if layer.bias is not None else Fraction(0)
        return size + largest(layer.weight) + bias, 1 + (layer.bias is not None)
    if isinstance(layer, Flatten | CenterCrop):
        return size, 0
    raise TypeError(f"the rounding of {type(layer).__name__} is not known, so nothing can be certified with it")


def largest(tensor: Tensor) -> Fraction:
    """max |t|, exactly and without a copy of the tensor; ValueError if it is not finite."""
    low, high = (end.item() for end in torch.aminmax(tensor.detach())) if tensor.numel() else (0.0, 0.0)
    if not (math.isfinite(low) and math.isfinite(high)):
        raise ValueError("the network has weights that are not finite, so nothing can be certified with it")
    return Fraction(max(-low, high, 0.0))


def gamma(count: int, unit: float) -> float:
    """γ_n = n u / (1 − n u), rounded up: the relative error of n roundings in a row; infinity if there are too many."""
    return math.inf if count * unit > 0.5 else count * unit / (1 - count * unit) * UP
