"""p = inf, forward: max_i |x_i - w_i|, with or without the place of the maximum.

One correctly rounded subtraction, then exact |.| and max: the same bits on every device, in any order.

The place costs little: the loop remembers only the first CHUNK of inputs that holds the maximum, and at the end each
output searches its chunk again.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...geometry import Geometry
from .launch import LINEAR_SIZES, Variant, launch, tiles_of, variant
from .layer import PANEL, Layer, corner, output, panel_of, tile_of_program
from .tiles import TABLE, Tile, run_tiled

CHUNK = tl.constexpr(16)
UNROLL = tl.constexpr(8)


def inf_dist(x: Tensor, w: Tensor, geometry: Geometry) -> Tensor:
    return _run(x, w, geometry, argmax=False)[0]


def inf_dist_argmax(x: Tensor, w: Tensor, geometry: Geometry) -> tuple[Tensor, Tensor]:
    return _run(x, w, geometry, argmax=True)


def _run(x: Tensor, w: Tensor, geometry: Geometry, argmax: bool) -> tuple[Tensor, Tensor]:
    layer = Layer.of(x.shape, w.shape, geometry)
    y = layer.new_output(x)
    where = layer.new_output(x, torch.int32) if argmax else y
    if layer.empty:
        return y, where
    windows = layer.windows(x)
    tensors = windows, layer.weights(w), x if layer.linear else windows, w, layer.steps(x.device), y, where

    def run(tile: Tile) -> None:
        programs = tiles_of(layer.rows, tile.rows) * tiles_of(layer.neurons, tile.neurons) * layer.groups
        launch(
            inf_kernel, programs, *tensors, *layer.sizes(),
            LINEAR=layer.linear, ARGMAX=argmax, **tile._asdict(), warps=tile.warps,
        )  # fmt: skip

    run_tiled("inf_argmax" if argmax else "inf", x.dtype, layer, run)
    return y.to(x.dtype), where


@triton.jit
def inf_kernel(
    x, w, x_rows, w_rows, steps, y, where,
    rows, neurons, inputs, groups, channels, height, width, out_height, out_width, stride_h, stride_w,
    LINEAR: tl.constexpr, ARGMAX: tl.constexpr,
    RM: tl.constexpr, RN: tl.constexpr, TM: tl.constexpr, TN: tl.constexpr,
):  # fmt: skip
    group, row, neuron = tile_of_program(rows, neurons, RM, RN, TM, TN)
    in_row, in_neuron = tl.minimum(row, rows - 1), tl.minimum(neuron, neurons - 1)
    x_at = x + corner(
        in_row, group, inputs, groups, channels, height, width, out_height, out_width, stride_h, stride_w, LINEAR
    )
    w_at = w + panel_of(in_neuron, group, neurons, inputs)
    real = tl.float64 if x.dtype.element_ty == tl.float64 else tl.float32
    best = tl.zeros((RM, RN, TM, TN), real)
    chunk = tl.zeros((RM, RN, TM, TN), tl.int32)
    for start in range(0, inputs, CHUNK):
        largest = tl.zeros((RM, RN, TM, TN), real) if ARGMAX else best
        for i in tl.range(start, tl.minimum(start + CHUNK, inputs), loop_unroll_factor=UNROLL):
            a = tl.load(x_at + (i * PANEL if LINEAR else tl.load(steps + i))).to(real)
            b = tl.load(w_at + i * PANEL).to(real)
            largest = tl.maximum(largest, tl.abs(a - b), tl.PropagateNan.ALL)
        if ARGMAX:
            new = (largest > best) | ((largest != largest) & (best == best))
            chunk = tl.where(new, start, chunk)
        best = tl.maximum(best, largest, tl.PropagateNan.ALL) if ARGMAX else largest
    inside = (row < rows) & (neuron < neurons)
    at = output(row, neuron, group, neurons, groups, out_height, out_width)
    tl.store(y + at, best, inside)
    if ARGMAX:
        x_at = x_rows + corner(
            in_row, group, inputs, groups, channels, height, width, out_height, out_width, stride_h, stride_w, False
        )
        w_at = w_rows + (group * neurons + in_neuron).to(tl.int64) * inputs
        found = tl.zeros((RM, RN, TM, TN), tl.int32)
        for back in range(CHUNK):  # from the last of the chunk to the first, which stays
            i = tl.minimum(chunk + (CHUNK - 1 - back), inputs - 1)
            a = tl.load(x_at + (i if LINEAR else tl.load(steps + i))).to(real)
            b = tl.load(w_at + i).to(real)
            d = tl.abs(a - b)
            found = tl.where((d == best) | (d != d), tl.where(a < b, ~i, i), found)
        tl.store(where + at, found, inside)


def variants() -> list[Variant]:
    found = []
    for kind in ("fp32", "fp64", "bf16"):
        for layer, sizes in (("linear", LINEAR_SIZES), ("convolution", {})):
            for argmax in (False, True):
                tile = TABLE["inf_argmax" if argmax else "inf"].holding(kind)
                pointers = dict.fromkeys(("x", "w", "x_rows", "w_rows"), f"*{kind}")
                values = "*fp64" if kind == "fp64" else "*fp32"
                types = pointers | {"steps": "*i32", "y": values, "where": "*i32" if argmax else values}
                constants = {**sizes, "LINEAR": layer == "linear", "ARGMAX": argmax, **tile._asdict()}
                name = f"{'inf_argmax' if argmax else 'inf'} {layer} {kind}"
                found.append(variant(name, inf_kernel, types, constants, tile.warps))
    return found
