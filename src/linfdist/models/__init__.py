"""Networks from pixels to logits: those of the paper, means of networks, and compositions of one's own layers."""

from typing import TYPE_CHECKING

from ..lazy import lazy_names

if TYPE_CHECKING:  # what `__getattr__` below imports when it is first used
    from . import zoo
    from .base import Network, PixelNet
    from .composed import Composed, as_network
    from .dist_net import ConvDistNet, ConvDistNetMLP, DistNet, DistNetMLP
    from .hub import push_to_hub, save_pretrained
    from .loading import from_config, load, load_floats, save
    from .mean import Mean
    from .pruning import prune

__all__ = [
    "Composed",
    "ConvDistNet",
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
    "prune",
    "push_to_hub",
    "save",
    "save_pretrained",
    "zoo",
]
__getattr__, __dir__ = lazy_names(
    __name__,
    {
        **dict.fromkeys(("Network", "PixelNet"), "base"),
        **dict.fromkeys(("Composed", "as_network"), "composed"),
        **dict.fromkeys(("ConvDistNet", "ConvDistNetMLP", "DistNet", "DistNetMLP"), "dist_net"),
        **dict.fromkeys(("push_to_hub", "save_pretrained"), "hub"),
        **dict.fromkeys(("from_config", "load", "load_floats", "save"), "loading"),
        "Mean": "mean",
        "prune": "pruning",
        "zoo": "",
    },
)
