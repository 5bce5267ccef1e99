"""Arithmetic with rounding errors: what layers, readouts and certificates share."""

import math
import os
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor

from ..ops.sizes import sizes as sizes
from .base import Box, Rounding

FLUSHED = 2.0**40  # times the smallest normal number: far more than a network can lose by flushing denormal numbers
UP, DOWN = 1 + 2.0**-50, 1 - 2.0**-50  # factors that outweigh a few roundings of float64


def largest(tensor: Tensor) -> Fraction:
    """Find max |t|, exactly and without a copy of the tensor; ValueError if it is not finite."""
    size = sizes(tensor)[1]
    if not math.isfinite(size):
        raise ValueError("the network has weights that are not finite, so nothing can be certified with it")
    return Fraction(size)


def gamma(count: int, unit: float) -> float:
    """γ_n = n u / (1 − n u), rounded up: the relative error of n roundings in a row; infinity if there are too many."""
    return math.inf if count * unit > 0.5 else count * unit / (1 - count * unit) * UP


def widened(lower: Tensor, upper: Tensor, slack: Tensor, dtype: torch.dtype) -> Box:
    """Move float64 bounds outwards by a slack >= 0, and round them outwards to `dtype`.

    The slack grows by 2^40 times the smallest normal number of `dtype`, far more than flushing denormal numbers to zero
    can cost. Whoever computes the bounds in float64 adds the rounding of that to the slack.
    """
    apart = slack * UP + FLUSHED * torch.finfo(dtype).tiny
    low, high = (lower - apart) - lower.abs() * 2.0**-50, (upper + apart) + upper.abs() * 2.0**-50
    infinity = torch.tensor(math.inf, dtype=dtype, device=lower.device)
    return Box(torch.nextafter(low.to(dtype), -infinity), torch.nextafter(high.to(dtype), infinity))


def mean_rounding(size: Fraction, count: int, unit: Fraction) -> Rounding:
    """Describe the rounding of a mean of so many numbers, none larger than `size`, summed in any order.

    count - 1 additions lose at most (count - 1) u of the sum of the absolute values, and the division by count, or the
    multiplication by a rounded 1/count, loses 2 u more. With count below 2^22, (count + 2) u covers the second order.
    """
    return Rounding(size, size * count, (count + 2) * unit * max(size, Fraction(1)))


def mean_slack(size: Tensor, count: int, dtype: torch.dtype) -> Tensor:
    """Bound how far a mean of `count` numbers, computed in `dtype` in any order, can be from the exact mean.

    size: the mean of the absolute values, or more, in float64. What float64 loses in computing the same mean once more
    is included; what flushing denormal numbers costs is not. Infinity where the sum might overflow.
    """
    precision = torch.finfo(dtype)
    slack = (gamma(count + 2, precision.eps / 2) + 2.0**-50 * (count + 2)) * size
    return slack.where(size * count < precision.max / 2, math.inf)


EXACT_PRODUCTS = ("none", "ieee")  # torch's words for float32 products in float32
EXACT_MODES = {  # what asks oneDNN and cuBLAS for other products than torch does, and what leaves them as they are
    "ONEDNN_DEFAULT_FPMATH_MODE": "STRICT",
    "DNNL_DEFAULT_FPMATH_MODE": "STRICT",
    "NVIDIA_TF32_OVERRIDE": "0",
    "CUBLAS_EMULATE_SINGLE_PRECISION": "0",
    "CUBLAS_EMULATE_DOUBLE_PRECISION": "0",
}


def check_products() -> None:
    """Raise ValueError if torch may compute matrix products in less than the precision of their factors."""
    for variable, harmless in EXACT_MODES.items():
        mode = os.environ.get(variable) or harmless
        if mode.upper() != harmless:
            raise ValueError(
                f"{variable}={mode}: products may be computed in less than the network's precision, which its "
                "bounds do not cover: unset it"
            )
    backends: Any = torch.backends
    for part in (backends, backends.mkldnn.matmul, backends.cuda.matmul):
        precision = part.fp32_precision
        if precision not in EXACT_PRODUCTS:
            raise ValueError(
                f"torch may compute float32 products in {precision}, which the bounds of the network do not "
                'cover: call torch.set_float32_matmul_precision("highest") first'
            )
