"""How many images go through a network at once."""

from collections.abc import Sequence

from torch import Tensor

from ..models import PixelNet

ROWS = 512  # enough for the kernels to be at their best
ELEMENTS = 1 << 24  # of the largest activation of a chunk: boxes hold a handful of tensors of that size, 64 MB each


def rows_at_once(network: PixelNet) -> int:
    """Return how many images go through the network at once: scratch memory stays at a few hundred megabytes."""
    return max(1, min(ROWS, ELEMENTS // network.elements()))


def in_chunks(network: PixelNet, tensor: Tensor) -> Sequence[Tensor]:
    """A tensor with one row per image, cut where the network takes no more images at once."""
    return tensor.split(rows_at_once(network)) if len(tensor) > 1 else (tensor,)
