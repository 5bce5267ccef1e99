"""Layers of ℓ∞-dist nets: each knows its Lipschitz constant and maps points and boxes."""

from .base import Box, LipschitzModule
from .center_crop import CenterCrop
from .dist_conv import DistConv2d
from .dist_linear import DistLinear
from .flatten import Flatten
from .head import Head
from .mean_shift import MeanShift
from .normalize import Normalize
from .scaled_linear import ScaledLinear
from .stack import Stack

__all__ = [
    "Box",
    "CenterCrop",
    "DistConv2d",
    "DistLinear",
    "Flatten",
    "Head",
    "LipschitzModule",
    "MeanShift",
    "Normalize",
    "ScaledLinear",
    "Stack",
]
