"""The networks of the paper, from pixels to logits."""

from .base import PixelNet
from .config import from_config
from .count import count_flops, count_parameters
from .dist_net import ConvDistNetMLP, DistNet, DistNetMLP
from .saved import load, save

__all__ = [
    "ConvDistNetMLP",
    "DistNet",
    "DistNetMLP",
    "PixelNet",
    "count_flops",
    "count_parameters",
    "from_config",
    "load",
    "save",
]
