"""What an exact network does with any point or box, in whole numbers, and how far floats can be from that.

The files scale the network by a power of two: an input is a byte divided by 256, so all numbers are exact in float32.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...exact import ExactCertificate, FrozenNet
from ...exact.twin import interval
from ...theory.relu import OPERATIONS, neuron_widths

Whole = NDArray[Any]  # int64, or Python's own whole numbers where those are longer
PARTS = 1024  # of a level: the grid of witnesses and radii
UNIT = 256 * PARTS  # parts in 1, as the files scale the pixels
LARGEST = 32  # of a difference: sums of the sizes of a row's terms are at most twice that, 2^24 of 1/UNIT


def outputs(network: FrozenNet, low: Whole, high: Whole, parts: int = PARTS) -> tuple[Whole, Whole]:
    """Bound the negated logits over a box of pixels, exactly; all in 1/parts of a level. A point is a box of size 0."""
    low, high, scale = low.ravel(), high.ravel(), parts >> network.k
    for layer in network.layers:
        weight, bias = (tensor.numpy().astype(low.dtype) * scale for tensor in (layer.weight, layer.bias))
        low, high = interval(weight, layer.mask.numpy(), bias, low, high)
    return low, high


def lead(network: FrozenNet, low: Whole, high: Whole, label: int, parts: int = PARTS) -> int:
    """Bound from below by how much the label's logit leads the others, over a box, in 1/parts of a level."""
    least, largest = outputs(network, low, high, parts)
    return int(np.delete(least, label).min() - largest[label])


def ball(pixels: Whole, reach: int) -> tuple[Whole, Whole]:
    """Return the ends of the closed ball around 8-bit pixels, within black and white, in parts."""
    middle = pixels.astype(np.int64) * PARTS
    return np.maximum(middle - reach, 0), np.minimum(middle + reach, 255 * PARTS)


def demanded(network: FrozenNet) -> int:
    """Return the lead, in parts, beyond which no float32 evaluation of either form can say otherwise.

    It is 2E. E bounds how far a logit can be from the exact one at any float32 image, whatever the order of its sums:
    as for `theory.to_relu`, at most `OPERATIONS` roundings of twice the largest value from one level of a maximum to
    the next, with float32's unit in place of float64's.
    """
    size = operations = 0
    for layer in network.layers:
        tensors = (layer.low, layer.high, layer.weight, layer.bias, *layer.range)
        size = max(size, 2 * max(int(tensor.long().abs().max()) for tensor in tensors))  # of a difference
        operations += 2 * (OPERATIONS * len(neuron_widths(layer.weight.shape[1])) + 8)
    largest = Fraction(size, 256 << network.k)
    if largest > LARGEST:
        raise ValueError(f"the network has differences of {float(largest):g}, {LARGEST} are allowed: train another one")
    error = (operations + 4) * largest * Fraction(1, 2**24) * Fraction(1025, 1024)  # the second order
    return int((2 * error * UNIT).__ceil__())


@dataclass(frozen=True)
class Case:
    """An image with everything that decides its properties.

    pixels: uint8 (C, H, W); witness: an image of another class, in parts; its distance is `radius`.
    """

    index: int
    pixels: NDArray[np.uint8]
    label: int
    certificate: ExactCertificate
    witness: Whole

    @property
    def radius(self) -> int:
        return int(np.abs(self.witness - self.pixels.astype(np.int64) * PARTS).max())


def proved(network: FrozenNet, pixels: Whole, label: int, reach: int, radius: Fraction, closed: bool) -> bool:
    """Return whether the ball of `reach` parts is within a certificate's radius (levels), with the lead demanded."""
    within = reach <= radius * PARTS if closed else reach < radius * PARTS
    return within and lead(network, *ball(pixels, reach), label) > demanded(network)


def fooled(network: FrozenNet, point: Whole, label: int) -> bool:
    """Return whether a point, in parts, has another class, with the lead demanded."""
    least, _ = outputs(network, point, point)
    return int(least[label] - np.delete(least, label).min()) > demanded(network)
