"""Interval bounds of the p = inf distance, with and without the inputs that attain them.

Two subtractions and four maxima for each input and weight, all of them correctly rounded or exact: the same bits on
every device, in any order. The places cost little, as in `inf`: the loop remembers the first CHUNK of inputs that holds
a maximum, and at the end each output searches its chunk again.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...geometry import Geometry
from .launch import LINEAR_SIZES, Variant, launch, tiles_of, variant
from .layer import PANEL, Layer, corner, output, panel_of
from .tiles import TABLE, Tile, run_tiled

CHUNK = tl.constexpr(8)


def box_dist(lower: Tensor, upper: Tensor, w: Tensor, geometry: Geometry) -> tuple[Tensor, Tensor]:
    nearest, farthest, _, _ = _run(lower, upper, w, geometry, argmax=False)
    return nearest, farthest


def box_dist_argmax(
    lower: Tensor, upper: Tensor, w: Tensor, geometry: Geometry
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return _run(lower, upper, w, geometry, argmax=True)


def _run(
    lower: Tensor, upper: Tensor, w: Tensor, geometry: Geometry, argmax: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    layer = Layer.of(lower.shape, w.shape, geometry)
    nearest, farthest = layer.new_output(lower), layer.new_output(lower)
    places = (layer.new_output(lower, torch.int32), layer.new_output(lower, torch.int32)) if argmax else (nearest,) * 2
    if not layer.empty:
        inputs = layer.windows(lower), layer.windows(upper), layer.weights(w), layer.steps(w.device)

        def run(tile: Tile) -> None:
            programs = tiles_of(layer.rows, tile.rows) * tiles_of(layer.neurons, tile.neurons) * layer.groups
            launch(
                box_kernel, programs, *inputs, nearest, farthest, *places, *layer.sizes(),
                LINEAR=layer.linear, ARGMAX=argmax, **tile._asdict(), warps=tile.warps,
            )  # fmt: skip

        run_tiled("box_argmax" if argmax else "box", lower.dtype, layer, run)
    return nearest.to(lower.dtype), farthest.to(lower.dtype), *places


@triton.jit
def box_kernel(
    lower, upper, w, steps, nearest, farthest, near_where, far_where,
    rows, neurons, inputs, groups, channels, height, width, out_height, out_width, stride_h, stride_w,
    LINEAR: tl.constexpr, ARGMAX: tl.constexpr,
    RM: tl.constexpr, RN: tl.constexpr, TM: tl.constexpr, TN: tl.constexpr,
):  # fmt: skip
    every: tl.constexpr = tl.PropagateNan.ALL
    real = tl.float64 if lower.dtype.element_ty == tl.float64 else tl.float32
    row_tiles, neuron_tiles = tl.cdiv(rows, RM * TM), tl.cdiv(neurons, RN * TN)
    tile = tl.program_id(0)
    group = tile // (row_tiles * neuron_tiles)
    first_row = tile % row_tiles * (RM * TM)
    first_neuron = tile // row_tiles % neuron_tiles * (RN * TN)
    tile_row = (tl.arange(0, RM)[:, None] * TM + tl.arange(0, TM)[None, :])[:, None, :, None]
    tile_neuron = (tl.arange(0, RN)[:, None] * TN + tl.arange(0, TN)[None, :])[None, :, None, :]
    row, neuron = first_row + tile_row, first_neuron + tile_neuron
    if LINEAR:  # a tile lies in one panel: one address for all, and constants
        x_at = tile_row + corner(
            first_row, group, inputs, groups, channels, height, width, out_height, out_width, stride_h, stride_w, True
        )
    else:
        x_at = corner(
            tl.minimum(row, rows - 1), group, inputs, groups, channels, height, width, out_height, out_width,
            stride_h, stride_w, False,
        )  # fmt: skip
    w_at = w + panel_of(first_neuron, group, neurons, inputs) + tile_neuron

    near = tl.full((RM, RN, TM, TN), float("-inf"), real)
    far = tl.full((RM, RN, TM, TN), float("-inf"), real)
    near_chunk, far_chunk = tl.zeros((RM, RN, TM, TN), tl.int32), tl.zeros((RM, RN, TM, TN), tl.int32)
    for start in range(0, inputs, CHUNK):
        near_before, far_before = near, far
        for i in tl.range(start, tl.minimum(start + CHUNK, inputs), loop_unroll_factor=CHUNK):
            at = x_at + (i * PANEL if LINEAR else tl.load(steps + i))
            weight = tl.load(w_at + i * PANEL).to(real)
            below, above = tl.load(lower + at).to(real) - weight, tl.load(upper + at).to(real) - weight
            near = tl.maximum(near, tl.maximum(below, above * -1.0, every), every)  # w - x is -(x - w), to the bit
            far = tl.maximum(far, tl.maximum(above, below * -1.0, every), every)
        if ARGMAX:
            near_chunk = tl.where((near != near_before) & (near_before == near_before), start, near_chunk)
            far_chunk = tl.where((far != far_before) & (far_before == far_before), start, far_chunk)

    inside = (row < rows) & (neuron < neurons)
    to = output(row, neuron, group, neurons, groups, out_height, out_width)
    tl.store(nearest + to, tl.maximum(near, 0.0, every) + 0.0, inside)  # + 0.0 turns -0.0 into 0.0
    tl.store(farthest + to, far + 0.0, inside)
    if ARGMAX:
        near_found, far_found = tl.zeros((RM, RN, TM, TN), tl.int32), tl.zeros((RM, RN, TM, TN), tl.int32)
        for back in range(CHUNK):  # from the last of the chunk to the first, which stays
            i = tl.minimum(near_chunk + (CHUNK - 1 - back), inputs - 1)
            at = x_at + (i * PANEL if LINEAR else tl.load(steps + i))
            weight = tl.load(w_at + i * PANEL).to(real)
            right, left = tl.load(lower + at).to(real) - weight, weight - tl.load(upper + at).to(real)
            largest = tl.maximum(right, left, every)
            found = (largest == near) | (largest != largest)
            near_found = tl.where(found, tl.where(left > right, ~i, i), near_found)

            i = tl.minimum(far_chunk + (CHUNK - 1 - back), inputs - 1)
            at = x_at + (i * PANEL if LINEAR else tl.load(steps + i))
            weight = tl.load(w_at + i * PANEL).to(real)
            right, left = tl.load(upper + at).to(real) - weight, weight - tl.load(lower + at).to(real)
            largest = tl.maximum(right, left, every)
            found = (largest == far) | (largest != largest)
            far_found = tl.where(found, tl.where(left > right, ~i, i), far_found)
        tl.store(near_where + to, near_found, inside)
        tl.store(far_where + to, far_found, inside)


def variants() -> list[Variant]:
    found = []
    for kind in ("fp32", "fp64", "bf16"):
        for layer, sizes in (("linear", LINEAR_SIZES), ("convolution", {})):
            for argmax in (False, True):
                name = "box_argmax" if argmax else "box"
                real = "*fp64" if kind == "fp64" else "*fp32"
                types = dict.fromkeys(("lower", "upper", "w"), f"*{kind}") | {"steps": "*i32"}
                types |= dict.fromkeys(("nearest", "farthest"), real)
                types |= dict.fromkeys(("near_where", "far_where"), "*i32" if argmax else real)
                tile = TABLE[name].holding(kind)
                constants = {**sizes, "LINEAR": layer == "linear", "ARGMAX": argmax, **tile._asdict()}
                found.append(variant(f"{name} {layer} {kind}", box_kernel, types, constants, tile.warps))
    return found
