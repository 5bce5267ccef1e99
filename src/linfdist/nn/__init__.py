"""Layers and readouts of ℓ∞-dist nets: each knows its Lipschitz constant, its rounding, and maps points and boxes."""

from .base import Box, Contract, Handlers, LipschitzModule, Rounding
from .dist_conv import DistConv2d
from .dist_linear import DistLinear
from .head import Head, ScaledLinear
from .mean_pool import MeanPool
from .mean_shift import MeanShift
from .normalize import Clip, Normalize
from .pixels import CenterCrop, Flatten, View
from .readout import Logits, NearestClass, Readout
from .stack import Stack

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
