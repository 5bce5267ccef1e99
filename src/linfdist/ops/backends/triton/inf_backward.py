"""p = inf, backward: each output's gradient goes to one input and one weight, and these are gathered.

A program holds a tile of dx or dw and goes through all outputs that could have chosen it, in a fixed order: no atomics,
and the order of the reference. For dx that is every neuron, for each place of the kernel that meets the pixel; for dw
every row, in at most SEGMENTS parts of at least SEGMENT rows, so that a long batch keeps many programs busy.
"""

import math
from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...geometry import Geometry
from .launch import LINEAR_SIZES, Variant, launch, tiles_of, variant
from .layer import Layer, meeting_row, tile_of_program
from .tiles import TABLE, Tile, run_tiled

UNROLL = tl.constexpr(8)


def inf_dist_backward(
    grad: Tensor, y: Tensor, where: Tensor, x_shape: Sequence[int], w_shape: Sequence[int], geometry: Geometry,
    need_x: bool, need_w: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    layer = Layer.of(x_shape, w_shape, geometry)
    coefficient = live(grad, y)
    coefficient = torch.where(where < 0, -coefficient, coefficient)
    place = torch.where(where < 0, ~where, where)
    dx, dw = layer.new_gradients(grad, need_x, need_w)
    if need_x and not layer.empty:
        of_neurons = layer.by_neuron(coefficient), layer.by_neuron(place)

        def run_x(tile: Tile) -> None:
            programs = tiles_of(layer.pixels, tile.rows) * tiles_of(layer.channels, tile.neurons) * layer.groups
            launch(
                inf_dx_kernel, programs, *of_neurons, dx, *layer.backward_sizes(), **tile._asdict(), warps=tile.warps
            )

        run_tiled("inf_dx", grad.dtype, layer, run_x)
    if need_w and not layer.empty:
        of_rows = layer.by_row(coefficient), layer.by_row(place)
        parts, segment = layer.segments()
        sums = dw.new_empty(parts, *w_shape)

        def run_w(tile: Tile) -> None:
            programs = tiles_of(layer.neurons, tile.rows) * tiles_of(layer.inputs, tile.neurons) * layer.groups * parts
            launch(
                inf_dw_kernel, programs, *of_rows, sums, layer.rows, layer.neurons, layer.inputs, layer.groups, segment,
                **tile._asdict(), warps=tile.warps,
            )  # fmt: skip

        run_tiled("inf_dw", grad.dtype, layer, run_w)
        dw = sums[0] if parts == 1 else sums.sum(0)
    return dx.to(grad.dtype), dw.to(grad.dtype)


def live(grad: Tensor, y: Tensor) -> Tensor:
    """Return the incoming gradient (halves become float32): 0 where the distance is 0, NaN where it is NaN."""
    grad = grad if grad.dtype == torch.float64 else grad.float()
    return grad.masked_fill(y == 0, 0.0).masked_fill(y.isnan(), math.nan)


@triton.jit
def inf_dx_kernel(
    coefficient, place, dx,
    pixels, channels, neurons, groups, rows, height, width, out_height, out_width,
    kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w,
    RM: tl.constexpr, RN: tl.constexpr, TM: tl.constexpr, TN: tl.constexpr,
):  # fmt: skip
    group, pixel, channel = tile_of_program(pixels, channels, RM, RN, TM, TN)
    total = tl.zeros((RM, RN, TM, TN), dx.dtype.element_ty)
    kernel = kernel_h * kernel_w
    for back in range(kernel):  # the rows that meet a pixel, from the first to the last
        tap = kernel - 1 - back
        row, met = meeting_row(
            pixel, tap, height, width, out_height, out_width, kernel_w,
            stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w,
        )  # fmt: skip
        met &= pixel < pixels
        own = channel * kernel + tap
        at = (group * neurons).to(tl.int64) * rows  # one number for the whole program: cheap to move on
        for _ in tl.range(0, neurons, loop_unroll_factor=UNROLL):
            c = tl.load(coefficient + at + row, met, 0.0)
            i = tl.load(place + at + row, met, -1)
            total = tl.where(i == own, total + c, total)
            at += rows
    n, at = pixel // (height * width), pixel % (height * width)
    at += (n.to(tl.int64) * (channels * groups) + group * channels + channel) * (height * width)
    tl.store(dx + at, total, (pixel < pixels) & (channel < channels))


@triton.jit
def inf_dw_kernel(
    coefficient, place, dw, rows, neurons, inputs, groups, segment,
    RM: tl.constexpr, RN: tl.constexpr, TM: tl.constexpr, TN: tl.constexpr,
):  # fmt: skip
    part, neuron, i = tile_of_program(neurons, inputs, RM, RN, TM, TN)
    group, part = part % groups, part // groups
    first = part * segment
    total = tl.zeros((RM, RN, TM, TN), dw.dtype.element_ty)
    at = first.to(tl.int64) * (neurons * groups) + group * neurons
    in_neuron = tl.minimum(neuron, neurons - 1)
    for _ in tl.range(first, tl.minimum(first + segment, rows), loop_unroll_factor=UNROLL):
        c = tl.load(coefficient + at + in_neuron)
        total = tl.where(tl.load(place + at + in_neuron) == i, total - c, total)
        at += neurons * groups
    at = ((part * groups + group) * neurons + neuron).to(tl.int64) * inputs + i
    tl.store(dw + at, total, (neuron < neurons) & (i < inputs))


def variants() -> list[Variant]:
    found = []
    for kind in ("fp32", "fp64"):
        tile = TABLE["inf_dx"].holding(kind)
        types = {"coefficient": f"*{kind}", "place": "*i32", "dx": f"*{kind}", "dw": f"*{kind}"}
        for layer, sizes in (("linear", LINEAR_SIZES), ("convolution", {})):
            constants = {**sizes, **tile._asdict()}
            if sizes:
                constants |= dict.fromkeys(("kernel_h", "kernel_w", "dilation_h", "dilation_w"), 1)
            found.append(variant(f"inf_dx {layer} {kind}", inf_dx_kernel, types, constants, tile.warps))
        own = TABLE["inf_dw"].holding(kind)
        found.append(variant(f"inf_dw {kind}", inf_dw_kernel, types, own._asdict(), own.warps))
    return found
