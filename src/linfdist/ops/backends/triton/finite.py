"""Finite p, forward: (sum_i |x_i - w_i|^p)^(1/p).

An output keeps a reference R, a difference near the largest so far, and the sum of (|d| / R)^p as high + low. Inputs
come in chunks: the terms of a chunk are added one after the other, and the chunk's sum is added with its rounding error
kept, so that errors do not grow with the number of inputs. When a chunk outgrows R, that output takes a new R and
scales its sum down. A tile checks whether any of its outputs must do so, but each output rescales for itself. So one
pass over the inputs is enough, no sum overflows, and none depends on the tile it is computed in.

Above p = 7, unless p is a product, a pass over the inputs for their largest difference comes first (`TWICE`): ratios of
at most 1 have a series, which saves more than that pass costs (`powers`), and a p of hundreds would outgrow R all the
time.

Roundings: subtractions, products, sums, quotients and square roots are correctly rounded, one by one; a product is
fused with a sum by `tl.fma` alone. exp2 and log2 are those of the device.

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
from .powers import PRODUCTS, choose_power, power, whole_power
from .tiles import TABLE, Tile, run_tiled

UNROLL = tl.constexpr(4)
PENDING = tl.constexpr(-1.0)  # instead of a distance that is to be computed carefully


def p_dist(x: Tensor, w: Tensor, p: float, geometry: Geometry) -> Tensor:
    layer = Layer.of(x.shape, w.shape, geometry)
    y = layer.new_output(x)
    if layer.empty:
        return y.to(x.dtype)
    tensors = layer.windows(x), layer.weights(w), layer.steps(x.device), y
    numbers, constants = choose_power(p, 0, layer.inputs, x.dtype)

    def run(tile: Tile) -> None:
        programs = tiles_of(layer.rows, tile.rows) * tiles_of(layer.neurons, tile.neurons) * layer.groups
        for careful in (False, True):
            launch(
                finite_kernel, programs, *tensors, *layer.sizes(), *numbers, LINEAR=layer.linear, CAREFUL=careful,
                **constants, **sum_constants(p), **tile._asdict(), warps=tile.warps,
            )  # fmt: skip

    run_tiled("finite", x.dtype, (layer, *constants.values()), run)
    return y.to(x.dtype)


def sum_constants(p: float) -> dict[str, Any]:
    """Return the constants of the summation, which depend on p alone."""
    return {
        "TWICE": p > 7 and p not in PRODUCTS,
        "CHUNK": 16 if p < 4 else 64,  # terms; the root divides the error of their sum by p
        "WIDE": p < 8,  # the root in float64
    }


@triton.jit
def finite_kernel(
    x, w, steps, y,
    rows, neurons, inputs, groups, channels, height, width, out_height, out_width, stride_h, stride_w,
    p_high, p_low, c1, c2, c3, c4, c5, c6, c7,
    LINEAR: tl.constexpr, CAREFUL: tl.constexpr, WHOLE: tl.constexpr, DEGREE: tl.constexpr, SQUARINGS: tl.constexpr,
    TWICE: tl.constexpr, CHUNK: tl.constexpr, WIDE: tl.constexpr,
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

    high = tl.zeros((RM, RN, TM, TN), real)
    low = tl.zeros((RM, RN, TM, TN), real)
    largest = chunk_max(x_at, w_at, steps, 0, inputs if TWICE else tl.minimum(CHUNK, inputs), high, LINEAR) * up
    reference = reference_of(largest, least, WHOLE)
    inverse = inverse_of(reference)
    for start in range(0, inputs, CHUNK):
        stop = tl.minimum(start + CHUNK, inputs)
        terms = chunk_sum(
            x_at, w_at, steps, start, stop, inverse, up, p, c1, c2, c3, c4, c5, c6, c7,
            LINEAR, WHOLE, DEGREE, SQUARINGS, TWICE,
        )  # fmt: skip
        if not TWICE:
            outgrown = (reference == 0) | ((terms <= 2.0**60) == 0)  # by NaN, too
            if tl.max(tl.ravel((outgrown & wanted).to(tl.int32))) > 0:
                largest = reference_of(chunk_max(x_at, w_at, steps, start, stop, high, LINEAR) * up, least, WHOLE)
                new = tl.where(outgrown, tl.maximum(reference, largest, tl.PropagateNan.ALL), reference)
                shrink = tl.where(new > reference, reference * inverse_of(new), 1)
                shrink = power(shrink, p, c1, c2, c3, c4, c5, c6, c7, WHOLE, DEGREE, SQUARINGS, True)
                high *= shrink
                low *= shrink
                reference = new
                inverse = inverse_of(reference)
                again = chunk_sum(
                    x_at, w_at, steps, start, stop, inverse, up, p, c1, c2, c3, c4, c5, c6, c7,
                    LINEAR, WHOLE, DEGREE, SQUARINGS, TWICE,
                )  # fmt: skip
                terms = tl.where(outgrown, again, terms)
        total = high + terms
        part = total - high
        low += (high - (total - part)) + (terms - part)  # what that addition lost
        high = total

    total = high + low
    if TWICE:
        total = tl.maximum(total, 2.0**-100)  # a huge p loses even the largest term, if its ratio is an ulp below 1
    distance = reference * root(total, p, WHOLE, WIDE) * (1 / up)
    plain = (reference > 0) & (reference < float("inf"))
    distance = tl.where(plain, distance, reference)  # 0, inf and NaN stay what they are
    if CAREFUL:
        tl.store(y + at, distance, wanted)
    else:
        tl.store(y + at, tl.where(plain & (reference <= least), PENDING, distance), inside)


@triton.jit
def reference_of(largest, least, WHOLE: tl.constexpr):
    """Return the divisor of differences: their largest, or for products a power of two near it, without rounding."""
    reference = largest
    if WHOLE > 0:
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
    else:
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
def chunk_sum(
    x_at, w_at, steps, start, stop, inverse, up, p, c1, c2, c3, c4, c5, c6, c7,
    LINEAR: tl.constexpr, WHOLE: tl.constexpr, DEGREE: tl.constexpr, SQUARINGS: tl.constexpr, CAPPED: tl.constexpr,
):  # fmt: skip
    """Sum (|x_i - w_i| up inverse)^p over a chunk of inputs, from the first to the last."""
    total = tl.zeros_like(inverse)
    for i in tl.range(start, stop, loop_unroll_factor=UNROLL):
        a = tl.load(x_at + (i * PANEL if LINEAR else tl.load(steps + i))).to(inverse.dtype)
        b = tl.load(w_at + i * PANEL).to(inverse.dtype)
        d = tl.abs(a - b) * up * inverse
        if WHOLE > 0 and WHOLE % 2 == 0:
            half = whole_power(d, WHOLE // 2)
            total = tl.fma(half, half, total)
        else:
            total += power(d, p, c1, c2, c3, c4, c5, c6, c7, WHOLE, DEGREE, SQUARINGS, CAPPED)
    return total


@triton.jit
def root(s, p, WHOLE: tl.constexpr, WIDE: tl.constexpr):
    """Compute s^(1/p): by square roots where these are enough, else in float64 for small p."""
    if WHOLE == 1:
        return s
    elif WHOLE == 2 or WHOLE == 4 or WHOLE == 8 or WHOLE == 16 or WHOLE == 32:
        for bit in tl.static_range(1, 6):
            if WHOLE >> bit > 0:
                s = tl.sqrt(s) if s.dtype == tl.float64 else tl.sqrt_rn(s)
        return s
    elif WIDE:
        return tl.exp2(tl.log2(s.to(tl.float64)) / p.to(tl.float64)).to(s.dtype)
    else:
        return tl.exp2(tl.log2(s) / p)


def variants() -> list[Variant]:
    found = []
    for kind, layer, p in (
        ("fp32", "linear", 8.0), ("fp32", "linear", 32.0), ("fp32", "linear", 2.0), ("fp32", "linear", 2.5),
        ("fp32", "linear", 30.5), ("fp32", "linear", 1000.0), ("fp32", "convolution", 8.0),
        ("fp32", "convolution", 30.5), ("fp64", "linear", 8.0), ("fp64", "linear", 30.5), ("bf16", "linear", 8.0),
    ):  # fmt: skip
        tile = TABLE["finite"].holding(kind)
        dtype = torch.float64 if kind == "fp64" else torch.float32
        chosen = choose_power(p, 0, 5120, dtype)[1]
        types = {"x": f"*{kind}", "w": f"*{kind}", "steps": "*i32", "y": "*fp64" if kind == "fp64" else "*fp32"}
        types |= dict.fromkeys(("p_high", "p_low", "c1", "c2", "c3", "c4", "c5", "c6", "c7"), "fp32")
        sizes = LINEAR_SIZES if layer == "linear" else {}
        for careful in (False, True) if (kind, layer, p) == ("fp32", "linear", 8.0) else (False,):
            constants = {**sizes, **chosen, **sum_constants(p), **tile._asdict()}
            constants |= {"LINEAR": layer == "linear", "CAREFUL": careful}
            name = f"finite {layer} {kind} p={p:g}{' careful' if careful else ''}"
            found.append(variant(name, finite_kernel, types, constants, tile.warps))
    return found
