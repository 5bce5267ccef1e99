"""The networks of the paper, from pixels to logits."""

from .base import PixelNet
from .composed import Composed, as_network
from .config import from_config
from .count import count_flops, count_parameters
from .dist_net import ConvDistNetMLP, DistNet, DistNetMLP
from .mean import Mean
from .saved import load, save

__all__ = [
    "Composed",
    "ConvDistNetMLP",
    "DistNet",
    "DistNetMLP",
    "Mean",
    "PixelNet",
    "as_network",
    "count_flops",
    "count_parameters",
    "from_config",
    "load",
    "save",
]
