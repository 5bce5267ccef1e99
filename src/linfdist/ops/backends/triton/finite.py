"""Finite p, forward: (sum_i |x_i - w_i|^p)^(1/p), in one pass over the inputs.

An output keeps a reference R near the largest difference seen so far, and the sum of (|d| / R)^p as hi + lo. Inputs come
in chunks: the terms of a chunk are added one after the other, and the chunk's sum is added with the rounding error kept,
so that errors do not grow with the number of inputs. When a chunk outgrows R, that output takes a new R and scales its
sum down; a whole tile decides whether anybody has to, but each output only for itself. So no sum ever overflows, and
none depends on the tile it is computed in.

Roundings: subtractions, products, sums and square roots are correctly rounded, one by one (a product is fused with a sum
only by `tl.fma`); at whole p up to 8, and at those of PRODUCTS, the terms are products, and nothing else is rounded
before the root. Other powers are exp2(p log2 a), with the device's exp2 and log2.

Distances that come out tiny (denormal ones, say) are computed again by `CAREFUL`, with all differences scaled up.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...geometry import Geometry
from .launch import LINEAR_SIZES, Variant, launch, tiles_of, variant
from .layer import PANEL, Layer, corner, output, panel_of, tile_of_program
from .tiles import TABLE, tile_of

PRODUCTS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32)
UNROLL = tl.constexpr(4)
PENDING = tl.constexpr(-1.0)  # instead of a distance that is to be computed carefully


def p_dist(x: Tensor, w: Tensor, p: float, geometry: Geometry) -> Tensor:
    layer, tile = Layer.of(x.shape, w.shape, geometry), tile_of("finite")
    y = layer.new_output(x)
    if layer.empty:
        return y.to(x.dtype)
    tensors = layer.windows(x), layer.weights(w), layer.steps(x.device), y
    programs = tiles_of(layer.rows, tile.rows) * tiles_of(layer.neurons, tile.neurons) * layer.groups
    for careful in (False, True):
        launch(
            finite_kernel, programs, *tensors, *layer.sizes(), *split(p), LINEAR=layer.linear, CAREFUL=careful,
            **power_constants(p), **tile._asdict(), warps=tile.warps,
        )  # fmt: skip
    return y.to(x.dtype)


def split(p: float) -> tuple[float, float]:
    """p as two float32 numbers, which is what a kernel takes."""
    high = float(torch.tensor(p, dtype=torch.float32))
    return high, p - high


def power_constants(p: float) -> dict[str, Any]:
    """How the kernel takes powers; all of it depends on p alone."""
    return {
        "P": int(p) if p in PRODUCTS else 0,
        "EAGER": p > 64,  # the largest difference of a chunk first: even a small growth of it overflows a sum
        "CHUNK": 16 if p < 4 else 64,  # terms; the root divides the error of their sum by p
        "WIDE": p < 8,  # the root in float64
    }


@triton.jit
def finite_kernel(
    x, w, steps, y,
    rows, neurons, inputs, groups, channels, height, width, out_height, out_width, stride_h, stride_w, p_high, p_low,
    LINEAR: tl.constexpr, CAREFUL: tl.constexpr,
    P: tl.constexpr, EAGER: tl.constexpr, CHUNK: tl.constexpr, WIDE: tl.constexpr,
    RM: tl.constexpr, RN: tl.constexpr, TM: tl.constexpr, TN: tl.constexpr,
):  # fmt: skip
    group, row, neuron = tile_of_program(rows, neurons, RM, RN, TM, TN)
    inside = (row < rows) & (neuron < neurons)
    at = output(row, neuron, group, neurons, groups, out_height, out_width)
    wanted = inside
    if CAREFUL:
        wanted = tl.load(y + at, inside, 0.0) < 0
        if tl.max(tl.ravel(wanted.to(tl.int32))) == 0:
            return
    row, neuron = tl.minimum(row, rows - 1), tl.minimum(neuron, neurons - 1)
    x_at = x + corner(
        row, group, inputs, groups, channels, height, width, out_height, out_width, stride_h, stride_w, LINEAR
    )
    w_at = w + panel_of(neuron, group, neurons, inputs)
    real = y.dtype.element_ty
    p = tl.full((), p_high, real) + tl.full((), p_low, real)
    up = (2.0**500 if real == tl.float64 else 2.0**64) if CAREFUL else 1.0
    least = 2.0**-900 if real == tl.float64 else 2.0**-100
    growth = tl.exp2(8 / p)

    high = tl.zeros((RM, RN, TM, TN), real)
    low = tl.zeros((RM, RN, TM, TN), real)
    largest = chunk_max(x_at, w_at, steps, 0, tl.minimum(CHUNK, inputs), high, LINEAR) * up
    reference = reference_of(largest, least, P)
    inverse = inverse_of(reference)
    for start in range(0, inputs, CHUNK):
        stop = tl.minimum(start + CHUNK, inputs)
        if EAGER:
            terms = high
            largest = chunk_max(x_at, w_at, steps, start, stop, high, LINEAR) * up
            outgrown = (reference == 0) | ((largest * inverse <= growth) == 0)  # also by NaN
        else:
            terms = chunk_sum(x_at, w_at, steps, start, stop, inverse, up, p, LINEAR, P)
            outgrown = (reference == 0) | ((terms <= 2.0**60) == 0)
        if tl.max(tl.ravel((outgrown & wanted).to(tl.int32))) > 0:
            if not EAGER:
                largest = chunk_max(x_at, w_at, steps, start, stop, high, LINEAR) * up
            largest = tl.maximum(reference, reference_of(largest, least, P), tl.PropagateNan.ALL)
            new = tl.where(outgrown, largest, reference)
            shrink = power(tl.where(new > reference, reference * inverse_of(new), 1), p, P)
            high *= shrink
            low *= shrink
            reference = new
            inverse = inverse_of(reference)
            if not EAGER:
                again = chunk_sum(x_at, w_at, steps, start, stop, inverse, up, p, LINEAR, P)
                terms = tl.where(outgrown, again, terms)
        if EAGER:
            terms = chunk_sum(x_at, w_at, steps, start, stop, inverse, up, p, LINEAR, P)
        total = high + terms
        part = total - high
        low += (high - (total - part)) + (terms - part)  # what that addition lost
        high = total

    distance = reference * root(high + low, p, P, WIDE) * (1 / up)
    plain = (reference > 0) & (reference < float("inf"))
    distance = tl.where(plain, distance, reference)  # 0, inf and NaN stay what they are
    if CAREFUL:
        tl.store(y + at, distance, wanted)
    else:
        tl.store(y + at, tl.where(plain & (reference <= least), PENDING, distance), inside)


@triton.jit
def reference_of(largest, least, P: tl.constexpr):
    """What differences are divided by: their largest, or for products a power of two near it, which does not round."""
    reference = largest
    if P > 0:
        if largest.dtype == tl.float64:
            reference = (largest.to(tl.int64, bitcast=True) & 0x7FF0000000000000).to(tl.float64, bitcast=True)
            reference = tl.minimum(reference, 2.0**1022)
        else:
            reference = (largest.to(tl.int32, bitcast=True) & 0x7F800000).to(tl.float32, bitcast=True)
            reference = tl.minimum(reference, 2.0**126)
    reference = tl.where(reference < least, least, reference)
    return tl.where((largest > 0) & (largest < float("inf")), reference, largest)


@triton.jit
def inverse_of(reference):
    """1 / reference; 0 for 0 and infinity."""
    plain = tl.where(reference > 0, reference, float("inf"))
    if reference.dtype == tl.float64:
        return 1 / plain
    return tl.div_rn(tl.full(plain.shape, 1, plain.dtype), plain)


@triton.jit
def chunk_max(x_at, w_at, steps, start, stop, like, LINEAR: tl.constexpr):
    """max |x_i - w_i| over a chunk of inputs."""
    largest = tl.zeros_like(like)
    for i in tl.range(start, stop, loop_unroll_factor=UNROLL):
        a = tl.load(x_at + (i * PANEL if LINEAR else tl.load(steps + i))).to(like.dtype)
        b = tl.load(w_at + i * PANEL).to(like.dtype)
        largest = tl.maximum(largest, tl.abs(a - b), tl.PropagateNan.ALL)
    return largest


@triton.jit
def chunk_sum(x_at, w_at, steps, start, stop, inverse, up, p, LINEAR: tl.constexpr, P: tl.constexpr):
    """The sum of (|x_i - w_i| up inverse)^p over a chunk of inputs, from the first to the last."""
    total = tl.zeros_like(inverse)
    for i in tl.range(start, stop, loop_unroll_factor=UNROLL):
        a = tl.load(x_at + (i * PANEL if LINEAR else tl.load(steps + i))).to(inverse.dtype)
        b = tl.load(w_at + i * PANEL).to(inverse.dtype)
        d = tl.abs(a - b) * up * inverse
        if P > 0 and P % 2 == 0:
            half = whole_power(d, P // 2)
            total = tl.fma(half, half, total)
        else:
            total += power(d, p, P)
    return total


@triton.jit
def power(a, p, P: tl.constexpr):
    """a^p for a >= 0: as few products as can be if P says so; exact 0 at 0 for p > 0."""
    if P == 0:
        return tl.exp2(p * tl.log2(a))
    return whole_power(a, P)


@triton.jit
def whole_power(a, P: tl.constexpr):
    """a^P for whole P from 0 to 63."""
    result = tl.full(a.shape, 1, a.dtype)
    for bit in tl.static_range(6):
        if (P >> bit) % 2 == 1:
            result *= a
        if (P >> bit) > 1:
            a *= a
    return result


@triton.jit
def root(s, p, P: tl.constexpr, WIDE: tl.constexpr):
    """s^(1/p): square roots where they do, else in float64 for small p."""
    if P == 1:
        return s
    elif P == 2 or P == 4 or P == 8 or P == 16 or P == 32:
        for bit in tl.static_range(1, 6):
            if P >> bit > 0:
                s = tl.sqrt(s) if s.dtype == tl.float64 else tl.sqrt_rn(s)
        return s
    elif WIDE:
        return tl.exp2(tl.log2(s.to(tl.float64)) / p.to(tl.float64)).to(s.dtype)
    else:
        return tl.exp2(tl.log2(s) / p)


def variants() -> list[Variant]:
    found = []
    for kind, layer, p in (
        ("fp32", "linear", 8.0), ("fp32", "linear", 32.0), ("fp32", "linear", 2.0), ("fp32", "linear", 30.5),
        ("fp32", "linear", 100.0), ("fp32", "convolution", 8.0), ("fp32", "convolution", 30.5),
        ("fp64", "linear", 8.0), ("fp64", "linear", 30.5), ("bf16", "linear", 8.0),
    ):  # fmt: skip
        tile, values = TABLE["finite"], "*fp64" if kind == "fp64" else "*fp32"
        types = {"x": f"*{kind}", "w": f"*{kind}", "steps": "*i32", "y": values, "p_high": "fp32", "p_low": "fp32"}
        sizes = LINEAR_SIZES if layer == "linear" else {}
        for careful in (False, True) if kind == "fp32" and layer == "linear" and p == 8 else (False,):
            constants = {**sizes, "LINEAR": layer == "linear", "CAREFUL": careful, **power_constants(p), **tile._asdict()}
            name = f"finite {layer} {kind} p={p:g}{' careful' if careful else ''}"
            found.append(variant(name, finite_kernel, types, constants, tile.warps))
    return found
