"""The smallest and the largest size of the numbers of a tensor, in one look at them: what rounding errors depend on."""

import math

import torch
from torch import Tensor

from .backends import native_for

_BITS = {torch.float32: torch.int32, torch.float64: torch.int64}


def sizes(tensor: Tensor) -> tuple[float, float]:
    """Return the smallest |t| that is not 0, NaN if there is none, and the largest |t|.

    The largest is 0 if there is none, NaN if one is NaN.

    Numbers are compared by their bits, which have the same order: so denormal numbers are seen, whether or not the
    processor takes them for 0. One that is smaller than all normal numbers may come out as 0 in such a mode.
    """
    values = tensor.detach().contiguous()
    values = values if values.dtype in _BITS else values.double()  # halves, which that holds exactly
    native = native_for(values, "sizes")
    if native:
        least, largest = native.sizes(values).tolist()
        return least, largest
    if not values.numel():
        return math.nan, 0.0
    every = torch.iinfo(_BITS[values.dtype]).max  # all bits but the sign
    bits = values.view(_BITS[values.dtype]) & every
    found = torch.stack([bits.where(bits != 0, every).min(), bits.max()])
    least, largest = found.view(values.dtype).tolist()
    return least, largest
