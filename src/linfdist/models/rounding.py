"""How far the network as executed in floating point can be from the network in exact arithmetic."""

import math
from collections.abc import Sequence
from fractions import Fraction

import torch
from torch import Tensor

from ..eps import round_up
from ..nn.base import FLUSHED as FLUSHED
from ..nn.base import LipschitzModule, Readout, Rounding, sizes
from .base import PixelNet


def rounding_error(network: PixelNet) -> float:
    """Bound |computed − exact| for all images of [0, 1]: E, of the logits if the readout has a Lipschitz constant, else
    of the features.

    Every operation of a dist net - the two of `Normalize`, the subtraction of a dist layer, the shift, the bias - is
    rounded once, by at most u · |result| with u = 2^-24 (float32); |·| and max are exact. A layer passes the error of
    its input on, times its Lipschitz constant in ℓ∞: 1 for all but the normalisation. With bounds M of all intermediate
    values, E = u · Σ M over the operations, rounded up generously (a factor 1 + 2^-10 covers the second order and the
    summation; as all M >= 1, it also covers denormals, flushed to zero or not). Infinity if some value could overflow.
    """
    precision = torch.finfo(network.any_tensor.dtype)
    found = network_rounding(network, Fraction(1), Fraction(precision.eps) / 2)  # |pixels| <= 1
    if 2 * found.peak > Fraction(precision.max):
        return math.inf  # an intermediate value might overflow
    return round_up(found.error * Fraction(1025, 1024))


def network_rounding(network: PixelNet, size: Fraction, unit: Fraction) -> Rounding:
    """Describe the rounding of a network for pixels of that size: up to the logits, or to the features, as above."""
    found, own = network.body.rounding(size, unit), network.readout.lipschitz
    if own is None:
        return found
    last = network.readout.rounding(found.size, unit)
    return Rounding(last.size, max(found.peak, last.peak), found.error * Fraction(own) + last.error)


def flush_error(network: PixelNet, error: float) -> float:
    """Bound what flushing denormal numbers to zero, or not, can change of a computed logit (or feature, see above).

    Threads may differ in that, so that the same image may give other bits elsewhere. In a network whose weights are 0
    or of ordinary size, a value that was flushed is lost in the next subtraction of a weight that is not 0, because it
    is less than a quarter of that weight's last digit, and is passed on as it is where the weight is 0: it never grows.
    So the change stays below 2^40 times the smallest normal number, of which one operation can cost one at most. Where
    a weight is so small that this argument fails, all we know is that both results are within `error` of the exact one.

    A layer that absorbs flushes (see `Contract`) encloses all that is computed up to its outputs, so that the argument
    is needed for the layers between two such layers only; nothing is left of it after a readout of that kind.
    """
    precision = torch.finfo(network.any_tensor.dtype)
    floor = precision.tiny * FLUSHED / precision.eps
    within = [module for module in network.modules() if isinstance(module, PixelNet)]  # itself, and its members
    if not all(_ordinary(run, floor) for each in within for run in _runs(each)):
        return 2 * error
    return 0.0 if network.readout.absorbs_flushes else FLUSHED * precision.tiny


def _runs(network: PixelNet) -> list[list[LipschitzModule | Readout]]:
    """The layers and the readout, cut in pieces at those that absorb flushes, which are in none of the pieces."""
    runs: list[list[LipschitzModule | Readout]] = [[]]
    for part in (*network.body, network.readout):
        if part.absorbs_flushes:
            runs.append([])
        else:
            runs[-1].append(part)
    return runs


def _ordinary(run: Sequence[LipschitzModule | Readout], floor: float) -> bool:
    """Whether a value that was flushed stays as small through these layers; a layer that shrinks values makes them
    denormal, and does not make up for one that stretches what is lost then.
    """
    steepest = math.prod(max(1.0, part.lipschitz or 1.0) for part in run)
    tensors = [tensor for part in run for tensor in (*part.parameters(), *part.buffers())]
    return steepest <= 2.0**30 and all(_none_between(tensor, floor) for tensor in tensors)


def _none_between(tensor: Tensor, floor: float) -> bool:
    """Whether every t is 0, or neither |t| nor, as for a std, 1/|t| lies below the floor."""
    least, largest = sizes(tensor)
    return not least < floor and not largest > 1 / floor
