"""Networks of all kinds, small, with every tensor set to something."""

import torch
from torch import Tensor

from linfdist.models import ConvDistNetMLP, DistNet, DistNetMLP, PixelNet

SHAPE = (2, 6, 7)
SIZES = {"shape": SHAPE, "classes": 5, "width": 11, "depth": 3, "mean": [0.2, 0.5], "std": 0.31}


def filled(network: PixelNet, seed: int = 0) -> PixelNet:
    generator = torch.Generator().manual_seed(seed)
    for name, tensor in network.state_dict().items():
        if name.endswith(("weight", "bias", "running_mean")):
            tensor.copy_(torch.randn(tensor.shape, generator=generator))
    return network.eval()


def plain(**changes) -> DistNet:
    return filled(DistNet(**{**SIZES, "identity_init": False, **changes}))


def with_head(**changes) -> DistNetMLP:
    return filled(DistNetMLP(**{**SIZES, "identity_init": False, "head": 9, **changes}))


def convolutional(**changes) -> ConvDistNetMLP:
    return filled(ConvDistNetMLP(**{**SIZES, "width": 3, "depth": 5, "head": 9, **changes}))


def images(count: int, seed: int = 0, shape=SHAPE) -> Tensor:
    """8-bit."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(256, (count, *shape), generator=generator).to(torch.uint8)
