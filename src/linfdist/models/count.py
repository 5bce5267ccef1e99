"""How large a network is."""

from ..nn import DistConv2d, DistLinear, ScaledLinear
from .base import PixelNet


def count_flops(model: PixelNet) -> int:
    """Operations for one image, the FLOPs of Tables 1, 2 and 9: one for each pair of a neuron and an input of it, at
    each position of a convolution, padding included.
    """
    total = 0
    size = model.size
    for layer in model.modules():  # in the order of the data
        if isinstance(layer, DistConv2d):
            size = layer.output_size(*size)
            total += layer.weight.numel() * size[0] * size[1]
        elif isinstance(layer, DistLinear | ScaledLinear):
            total += layer.weight.numel()
    return total


def count_parameters(model: PixelNet) -> int:
    """Numbers that are learned."""
    return sum(parameter.numel() for parameter in model.parameters())
