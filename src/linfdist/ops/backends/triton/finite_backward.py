"""Finite p, backward: sign(x_i - w_i) (|x_i - w_i| / y)^(p - 1) for every pair of an input and a neuron that meet.

A program holds a tile of dx or dw and adds up all its contributions in a fixed order, as at p = inf (`inf_backward`).
Sums are plain float32 (float64) sums, a product fused with each addition.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...geometry import Geometry
from .inf_backward import live
from .launch import LINEAR_SIZES, Variant, launch, tiles_of, variant
from .layer import Layer, meeting_row, tile_of_program
from .powers import choose_power, power, whole_power
from .tiles import TABLE, Tile, run_tiled

UNROLL = tl.constexpr(2)


def p_dist_backward(
    grad: Tensor, x: Tensor, w: Tensor, y: Tensor, p: float, geometry: Geometry, need_x: bool, need_w: bool
) -> tuple[Tensor, Tensor]:
    layer = Layer.of(x.shape, w.shape, geometry)
    coefficient = live(grad, y)
    inverse = y.to(coefficient.dtype).clamp(min=torch.finfo(coefficient.dtype).tiny).reciprocal()
    numbers, power_constants = choose_power(p, 1, layer.inputs, x.dtype)
    dx, dw = layer.new_gradients(grad, need_x, need_w)
    constants = {**power_constants, "LINEAR": layer.linear, "TINY": p < 1.25}
    problem = (layer, *constants.values())
    if need_x and not layer.empty:
        of_neurons = x, w.permute(2, 3, 0, 1).contiguous(), layer.by_neuron(coefficient), layer.by_neuron(inverse)

        def run_x(tile: Tile) -> None:
            programs = tiles_of(layer.pixels, tile.rows) * tiles_of(layer.channels, tile.neurons) * layer.groups
            launch(
                finite_dx_kernel, programs, *of_neurons, dx, *layer.backward_sizes(), *numbers,
                **constants, **tile._asdict(), warps=tile.warps,
            )  # fmt: skip

        run_tiled("finite_dx", x.dtype, problem, run_x)
    if need_w and not layer.empty:
        of_rows = layer.padded(x), w, layer.by_row(coefficient), layer.by_row(inverse), layer.steps(x.device)
        parts, segment = layer.segments()
        sums = dw.new_empty(parts, *w.shape)

        def run_w(tile: Tile) -> None:
            programs = tiles_of(layer.neurons, tile.rows) * tiles_of(layer.inputs, tile.neurons) * layer.groups * parts
            launch(
                finite_dw_kernel, programs, *of_rows, sums, *layer.sizes(), segment, *numbers,
                **constants, **tile._asdict(), warps=tile.warps,
            )  # fmt: skip

        run_tiled("finite_dw", x.dtype, problem, run_w)
        dw = sums[0] if parts == 1 else sums.sum(0)
    return dx.to(x.dtype), dw.to(x.dtype)


@triton.jit
def finite_dx_kernel(
    x, w, coefficient, inverse, dx,
    pixels, channels, neurons, groups, rows, height, width, out_height, out_width,
    kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w,
    e_high, e_low, c1, c2, c3, c4, c5, c6, c7,
    LINEAR: tl.constexpr, TINY: tl.constexpr, WHOLE: tl.constexpr, DEGREE: tl.constexpr, SQUARINGS: tl.constexpr,
    RM: tl.constexpr, RN: tl.constexpr, TM: tl.constexpr, TN: tl.constexpr,
):  # fmt: skip
    group, pixel, channel = tile_of_program(pixels, channels, RM, RN, TM, TN)
    real = dx.dtype.element_ty
    e = tl.full((), e_high, real) + tl.full((), e_low, real)
    inside = (pixel < pixels) & (channel < channels)
    n, here = pixel // (height * width), pixel % (height * width)
    here += (n.to(tl.int64) * (channels * groups) + group * channels + channel) * (height * width)
    a = tl.load(x + here, inside, 0.0).to(real)
    channel = tl.minimum(channel, channels - 1)
    total = tl.zeros((RM, RN, TM, TN), real)
    kernel = kernel_h * kernel_w
    for back in range(kernel):  # the rows that meet a pixel, from the first to the last
        tap = kernel - 1 - back
        row, met = meeting_row(
            pixel, tap, height, width, out_height, out_width, kernel_w,
            stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w,
        )  # fmt: skip
        met &= pixel < pixels
        at = (group * neurons).to(tl.int64) * rows
        w_at = (tap * groups + group).to(tl.int64) * neurons * channels
        before = total
        for _ in tl.range(0, neurons, loop_unroll_factor=UNROLL):
            d = a - tl.load(w + w_at + channel).to(real)
            total = add_slope(
                total, d, tl.load(inverse + at + row, met, 0.0), tl.load(coefficient + at + row, met, 0.0),
                e, c1, c2, c3, c4, c5, c6, c7, TINY, WHOLE, DEGREE, SQUARINGS,
            )  # fmt: skip
            at += rows
            w_at += channels
        if not LINEAR:
            total = tl.where(met, total, before)  # an infinite pixel must not meet the windows that do not see it
    tl.store(dx + here, total, inside)


@triton.jit
def finite_dw_kernel(
    x, w, coefficient, inverse, steps, dw,
    rows, neurons, inputs, groups, channels, height, width, out_height, out_width, stride_h, stride_w,
    segment, e_high, e_low, c1, c2, c3, c4, c5, c6, c7,
    LINEAR: tl.constexpr, TINY: tl.constexpr, WHOLE: tl.constexpr, DEGREE: tl.constexpr, SQUARINGS: tl.constexpr,
    RM: tl.constexpr, RN: tl.constexpr, TM: tl.constexpr, TN: tl.constexpr,
):  # fmt: skip
    part, neuron, i = tile_of_program(neurons, inputs, RM, RN, TM, TN)
    group, part = part % groups, part // groups
    real = dw.dtype.element_ty
    e = tl.full((), e_high, real) + tl.full((), e_low, real)
    inside = (neuron < neurons) & (i < inputs)
    here = (group * neurons + neuron).to(tl.int64) * inputs + i
    b = tl.load(w + here, inside, 0.0).to(real)
    neuron, i = tl.minimum(neuron, neurons - 1), tl.minimum(i, inputs - 1)
    step = i if LINEAR else tl.load(steps + i)
    total = tl.zeros((RM, RN, TM, TN), real)
    first = part * segment
    at = first.to(tl.int64) * (neurons * groups) + group * neurons
    x_at = first.to(tl.int64) * inputs
    for row in tl.range(first, tl.minimum(first + segment, rows), loop_unroll_factor=UNROLL):
        if not LINEAR:
            n, position = row // (out_height * out_width), row % (out_height * out_width)
            x_at = (n.to(tl.int64) * channels + group * (channels // groups)) * height
            x_at = (x_at + position // out_width * stride_h) * width + position % out_width * stride_w
        d = b - tl.load(x + x_at + step).to(real)  # the gradient of w has the other sign
        total = add_slope(
            total, d, tl.load(inverse + at + neuron), tl.load(coefficient + at + neuron),
            e, c1, c2, c3, c4, c5, c6, c7, TINY, WHOLE, DEGREE, SQUARINGS,
        )  # fmt: skip
        at += neurons * groups
        x_at += inputs
    tl.store(dw + part.to(tl.int64) * (groups * neurons) * inputs + here, total, inside)


@triton.jit
def add_slope(
    total, d, inverse, coefficient, e, c1, c2, c3, c4, c5, c6, c7,
    TINY: tl.constexpr, WHOLE: tl.constexpr, DEGREE: tl.constexpr, SQUARINGS: tl.constexpr,
):  # fmt: skip
    """total + coefficient sign(d) (|d| inverse)^e."""
    if WHOLE > 0 and WHOLE % 2 == 1:  # an odd power keeps the sign
        ratio = d * inverse
        return tl.fma(whole_power(ratio, WHOLE - 1), ratio * coefficient, total)
    else:
        ratio = tl.abs(d) * inverse
        if TINY and WHOLE < 0:  # numbers too small for a device's log2 have powers of weight
            small = ratio < (2.0**-900 if d.dtype == tl.float64 else 2.0**-100)
            ratio = tl.where(small, ratio * (2.0**200 if d.dtype == tl.float64 else 2.0**64), ratio)
            slope = power(ratio, e, c1, c2, c3, c4, c5, c6, c7, WHOLE, DEGREE, SQUARINGS, True)
            slope = tl.where(small, slope * tl.exp2((-200.0 if d.dtype == tl.float64 else -64.0) * e), slope)
        else:
            slope = power(ratio, e, c1, c2, c3, c4, c5, c6, c7, WHOLE, DEGREE, SQUARINGS, True)
        slope = tl.where(d < 0, -slope, tl.where(d == 0, 0.0, slope))
        return tl.fma(slope, coefficient, total)


def variants() -> list[Variant]:
    found = []
    for kind, p in (
        ("fp32", 8.0), ("fp32", 32.0), ("fp32", 7.0), ("fp32", 30.5), ("fp32", 1000.0), ("fp32", 1.01), ("fp32", 2.5),
        ("fp64", 8.0), ("fp64", 30.5), ("bf16", 8.0),
    ):  # fmt: skip
        tile, own = TABLE["finite_dx"].holding(kind), TABLE["finite_dw"].holding(kind)
        dtype, values = (torch.float64, "*fp64") if kind == "fp64" else (torch.float32, "*fp32")
        types = {"x": f"*{kind}", "w": f"*{kind}", "steps": "*i32"}
        types |= dict.fromkeys(("coefficient", "inverse", "dx", "dw"), values)
        types |= dict.fromkeys(("e_high", "e_low", "c1", "c2", "c3", "c4", "c5", "c6", "c7"), "fp32")
        for layer, sizes in (("linear", LINEAR_SIZES), ("convolution", {})):
            constants = {**sizes, **choose_power(p, 1, 5120, dtype)[1], "LINEAR": layer == "linear", "TINY": p < 1.25}
            ones = dict.fromkeys(("kernel_h", "kernel_w", "dilation_h", "dilation_w"), 1) if sizes else {}
            name = f"{layer} {kind} p={p:g}"
            found.append(
                variant(f"finite_dx {name}", finite_dx_kernel, types, constants | ones | tile._asdict(), tile.warps)
            )
            found.append(variant(f"finite_dw {name}", finite_dw_kernel, types, constants | own._asdict(), own.warps))
    return found
