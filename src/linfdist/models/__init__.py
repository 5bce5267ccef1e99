"""Networks from pixels to logits: those of the paper, means of networks, and compositions of one's own layers."""

from .base import Composed, Network, PixelNet, as_network
from .dist_net import ConvDistNetMLP, DistNet, DistNetMLP
from .loading import from_config, load, load_floats, save
from .mean import Mean

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
    "load_floats",
    "save",
]
