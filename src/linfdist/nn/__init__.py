"""Layers and readouts of ℓ∞-dist nets: each knows its Lipschitz constant, its rounding, and maps points and boxes."""

from .base import Box, Contract, Handlers, LipschitzModule, Rounding
from .center_crop import CenterCrop
from .clip import Clip
from .dist_conv import DistConv2d
from .dist_linear import DistLinear
from .flatten import Flatten
from .head import Head
from .mean_pool import MeanPool
from .mean_shift import MeanShift
from .nearest_class import NearestClass
from .normalize import Normalize
from .readout import Logits, Readout
from .scaled_linear import ScaledLinear
from .stack import Stack
from .view import View

__all__ = [
    "Box",
    "CenterCrop",
    "Clip",
    "Contract",
    "DistConv2d",
    "DistLinear",
    "Flatten",
    "Handlers",
    "Head",
    "LipschitzModule",
    "Logits",
    "MeanPool",
    "MeanShift",
    "NearestClass",
    "Normalize",
    "Readout",
    "Rounding",
    "ScaledLinear",
    "Stack",
    "View",
]
