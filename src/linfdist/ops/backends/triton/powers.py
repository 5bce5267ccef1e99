"""Choose how to compute powers a^e of ratios, e = p forward and p - 1 backward, as in csrc/series.cpp.

- Products, at the whole p of PRODUCTS: exact except for their own roundings.
- A series, in float32 and for e > 7: with e = q 2^k, a^e = f(1 - a)^(2^k), f a polynomial fitted to (1 - u)^q. It needs
  0 <= a <= 1, and fewer instructions than
- exp2(e log2 a), for all others.

If p is above 7 and not in PRODUCTS, a forward kernel knows the largest difference before it computes powers, and a
backward kernel knows the distance, so their ratios are at most 1 (`CAPPED`).
"""

import functools
import math
from typing import Any

import torch
import triton
import triton.language as tl

PRODUCTS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32)
HUGE = 2.0**100  # beyond it nothing but a = 1 has a power other than 0, and infinity times log2(1) would be NaN
COEFFICIENTS = 7  # of the series, beside c[0] = 1
NODES = 0.5 - 0.5 * torch.cos(math.pi * (torch.arange(64, dtype=torch.float64, device="cpu") + 0.5) / 64)


def choose_power(p: float, less: int, inputs: int, dtype: torch.dtype) -> tuple[tuple[float, ...], dict[str, Any]]:
    """Choose how a kernel computes a^(p - less): numbers (the exponent as two float32, the series) and constants."""
    return _choose_power(p, less, 1 << max(0, inputs - 1).bit_length(), dtype == torch.float64)


@functools.lru_cache(maxsize=1024)
def _choose_power(p: float, less: int, inputs: int, wide: bool) -> tuple[tuple[float, ...], dict[str, Any]]:
    """Do the same with the number of inputs rounded up, so that layers share the cached result."""
    exponent = min(p - less, HUGE)
    high = float(torch.tensor(exponent, dtype=torch.float32, device="cpu"))
    coefficients: list[float] = []
    squarings = 0
    if p not in PRODUCTS and 7 < exponent < 1e6 and not wide:
        # Forward, the p-th root divides the error by p. Absolute errors of many small terms add up.
        tolerance = 5e-5 if less else 2.5e-7 * exponent
        coefficients, squarings = _fit_series(exponent, tolerance, small=min(1e-3, 1 / inputs))
    padded = coefficients + [0.0] * (COEFFICIENTS - len(coefficients))
    whole = int(exponent) if p in PRODUCTS else -1
    constants = {"WHOLE": whole, "DEGREE": len(coefficients), "SQUARINGS": squarings}
    return (high, exponent - high, *padded), constants


def _fit_series(e: float, tolerance: float, small: float) -> tuple[list[float], int]:
    """Return the coefficients (c[1], ...) and squarings of the cheapest accurate series; [] if there is none."""
    squarings = math.ceil(math.log2(e)) - 1  # 1 < q <= 2
    q = e / 2**squarings
    if e > 500:  # only a near 1 matters: the binomial series itself
        return [-q, q * (q - 1) / 2, -q * (q - 1) * (q - 2) / 6], squarings
    for cost in range(3, 9):  # multiplications beside the squarings; one squaring less first
        for fewer in (1, 0):
            degree = cost - 1 + fewer
            if 3 <= degree <= COEFFICIENTS:
                coefficients, error = _fit(e, 2 * q if fewer else q, small, degree)
                if error < tolerance:
                    return coefficients, squarings - fewer
    return [], 0


def _fit(e: float, q: float, small: float, degree: int) -> tuple[list[float], float]:
    """Fit (1 - u)^q by least squares, weighted by an error's effect on the sum; return its error too."""
    a, u = NODES, 1 - NODES
    weight = a ** (e - q) / (a**e + small)
    powers = u[:, None] ** torch.arange(1, degree + 1, device="cpu")
    coefficients = torch.linalg.lstsq(powers * weight[:, None], ((a**q - 1) * weight)[:, None]).solution[:, 0]
    fitted = (1 + powers @ coefficients).abs() ** (e / q)
    return coefficients.tolist(), float(((fitted - a**e).abs() / (a**e + small)).max())


@triton.jit
def power(
    a, e, c1, c2, c3, c4, c5, c6, c7,
    WHOLE: tl.constexpr, DEGREE: tl.constexpr, SQUARINGS: tl.constexpr, CAPPED: tl.constexpr,
):  # fmt: skip
    """Compute a^e for a >= 0. If CAPPED, a is at most 1 up to an ulp, which a huge exponent would amplify."""
    if WHOLE >= 0:
        return whole_power(a, WHOLE)
    elif DEGREE > 0:
        u = tl.maximum(1 - a, 0.0)
        result = tl.full(a.shape, 0, a.dtype) + (
            c3 if DEGREE == 3 else c4 if DEGREE == 4 else c5 if DEGREE == 5 else c6 if DEGREE == 6 else c7
        )
        if DEGREE >= 7:
            result = tl.fma(result, u, c6)
        if DEGREE >= 6:
            result = tl.fma(result, u, c5)
        if DEGREE >= 5:
            result = tl.fma(result, u, c4)
        if DEGREE >= 4:
            result = tl.fma(result, u, c3)
        result = tl.fma(tl.fma(tl.fma(result, u, c2), u, c1), u, 1.0)
        for _ in tl.static_range(SQUARINGS):
            result *= result
        return result
    else:
        log = e * tl.log2(a)
        return tl.exp2(tl.minimum(log, 0.0, tl.PropagateNan.ALL) if CAPPED else log)


@triton.jit
def whole_power(a, E: tl.constexpr):
    """Compute a^E for whole E from 0 to 63."""
    result = tl.full(a.shape, 1, a.dtype)
    for bit in tl.static_range(6):
        if (E >> bit) % 2 == 1:
            result *= a
        if (E >> bit) > 1:
            a *= a
    return result
