"""How many images go through a network at once."""

import math

from ..models import PixelNet
from ..nn import DistConv2d, DistLinear

ROWS = 512  # enough for the kernels to be at their best
ELEMENTS = 1 << 24  # of the largest activation of a chunk: boxes hold a handful of tensors of that size, 64 MB each


def rows_at_once(network: PixelNet) -> int:
    """So many that scratch memory stays at a few hundred megabytes."""
    largest, size = math.prod(network.shape), network.size
    for layer in network.body:
        if isinstance(layer, DistConv2d):
            size = layer.output_size(*size)
            largest = max(largest, layer.out_channels * math.prod(size))
        elif isinstance(layer, DistLinear):
            largest = max(largest, layer.out_features)
    return max(1, min(ROWS, ELEMENTS // largest))
