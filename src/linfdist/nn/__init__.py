"""Layers and readouts of ℓ∞-dist nets: each knows its Lipschitz constant, its rounding, and maps points and boxes."""

from .base import Box, Contract, Handlers, LipschitzModule, Logits, Readout, Rounding, Stack
from .dist import DistConv2d, DistLinear, MeanShift, NearestClass
from .head import Head, ScaledLinear
from .pixels import CenterCrop, Clip, Flatten, MeanPool, MirrorPairs, Normalize, View

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
    "MirrorPairs",
    "NearestClass",
    "Normalize",
    "Readout",
    "Rounding",
    "ScaledLinear",
    "Stack",
    "View",
]
