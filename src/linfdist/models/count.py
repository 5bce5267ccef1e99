"""How large a network is."""

from .base import PixelNet


def count_flops(model: PixelNet) -> int:
    """Count the operations for one image, the FLOPs of Tables 1, 2 and 9: one for each pair of a neuron and an input of
    it, at each position of a convolution, padding included.
    """
    return model.terms()


def count_parameters(model: PixelNet) -> int:
    """Count the numbers that are learned."""
    return sum(parameter.numel() for parameter in model.parameters())
