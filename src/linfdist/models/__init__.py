"""Networks from pixels to logits: those of the paper, means of networks, and compositions of one's own layers."""

from .base import Network, PixelNet
from .composed import Composed, as_network
from .config import from_config
from .dist_net import ConvDistNetMLP, DistNet, DistNetMLP
from .mean import Mean
from .saved import load, save

__all__ = [
    "Composed",
    "ConvDistNetMLP",
    "DistNet",
    "DistNetMLP",
    "Mean",
    "Network",
    "PixelNet",
    "as_network",
    "from_config",
    "load",
    "save",
]
