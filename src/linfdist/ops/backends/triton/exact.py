"""Integer dist layers: see `linfdist.ops.exact`.

Dense layers take the float kernel at p = inf: whole numbers and their differences are exact in float32 up to 2^24,
which int16 never leaves, and in float64 for int32; GPUs subtract and compare floats faster than integers.

Pruned layers have a kernel of their own. Its tile is some neurons times some images; each step takes one entry of every
neuron. Neurons of about the same number of entries go together, so that few steps are empty.

No network of the package calls these yet: exact networks stay on the CPU. They serve calls of `linfdist.ops.exact`
with tensors on a GPU.
"""

from itertools import pairwise

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...geometry import POINT
from . import interpreted
from .inf import inf_dist
from .launch import Variant, launch, tiles_of, variant
from .tiles import Tile

TILE = Tile(4, 2, 4, 32)  # neurons times images
INTERPRETED = Tile(64, 1, 8, 8)


def exact_dense(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    real = torch.float32 if x.dtype == torch.int16 else torch.float64
    y = inf_dist(x.T.to(real).contiguous()[:, :, None, None], w.to(real)[:, :, None, None], POINT)  # (B, O, 1, 1)
    return (y[:, :, 0, 0].T.to(torch.int32) + b[:, None]).to(x.dtype).contiguous()  # the sum fits, so it may wrap


def exact_sided(
    x: Tensor, neuron: Tensor, start: Tensor, middle: Tensor, inputs: Tensor, weight: Tensor, b: Tensor
) -> Tensor:
    y = x.new_empty(len(b), x.shape[1])
    if not y.numel():
        return y
    counts, first, index, sign, constant = _by_neuron(neuron, start, middle, inputs, weight, len(b))
    order = counts.argsort(stable=True).int()
    tile = INTERPRETED if interpreted() else TILE
    launch(
        sided_kernel,
        tiles_of(len(b), tile.rows) * tiles_of(x.shape[1], tile.neurons),
        x, order, first, counts, index, sign, constant, b, y, len(b), x.shape[1], **tile._asdict(), warps=tile.warps,
    )  # fmt: skip
    return y


def exact_network(
    images: Tensor, k: int, sizes: list[int], runs: list[int],
    neuron: Tensor, start: Tensor, middle: Tensor, inputs: Tensor, weight: Tensor, b: Tensor,
) -> Tensor:  # fmt: skip
    x = (images.T.to(torch.int32) << k).to(weight.dtype).contiguous()  # (I, B)
    first = 0  # of the layer's neurons
    for (begin, end), size in zip(pairwise(runs), sizes[1:], strict=True):
        part = slice(begin, end)
        starts = start[begin : end + 1]
        x = exact_sided(x, neuron[part], starts, middle[part], inputs, weight, b[first : first + size])
        first += size
    return -x.T.to(torch.int32).contiguous()


def _by_neuron(
    neuron: Tensor, start: Tensor, middle: Tensor, inputs: Tensor, weight: Tensor, neurons: int
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Sort the runs' entries by neuron, those of a neuron side by side.

    Returns the number of entries of each neuron, where they begin, and of each entry its input, sign s and constant s *
    w; the entry's value is s * x - s * w.
    """
    begin, end = start[0], start[-1]
    lengths = start.diff()
    entries = torch.arange(int(end - begin), device=start.device)
    run = torch.repeat_interleave(lengths, output_size=len(entries))
    order = neuron[run].argsort(stable=True)
    entry = begin + order
    sign = torch.where(entry < middle[run[order]], 1, -1).to(torch.int32)
    counts = torch.zeros(neurons, dtype=torch.int64, device=start.device).index_add_(0, neuron.long(), lengths)
    first = (counts.cumsum(0) - counts).clamp(max=max(len(entries) - 1, 0))  # the last may have none
    return counts.int(), first.int(), inputs[entry], sign, sign * weight[entry]


@triton.jit
def sided_kernel(
    x, order, first, counts, index, sign, constant, b, y, neurons, images,
    RM: tl.constexpr, RN: tl.constexpr, TM: tl.constexpr, TN: tl.constexpr,
):  # fmt: skip
    tiles = tl.cdiv(neurons, RM * TM)
    slot = tl.program_id(0) % tiles * (RM * TM)
    column = tl.program_id(0) // tiles * (RN * TN)
    slot += (tl.arange(0, RM)[:, None] * TM + tl.arange(0, TM)[None, :])[:, None, :, None]
    column += (tl.arange(0, RN)[:, None] * TN + tl.arange(0, TN)[None, :])[None, :, None, :]
    inside = (slot < neurons) & (column < images)
    neuron = tl.load(order + tl.minimum(slot, neurons - 1))
    entry, count = tl.load(first + neuron), tl.load(counts + neuron)
    last = tl.maximum(entry + count - 1, 0)
    x += tl.minimum(column, images - 1)
    most = tl.max(tl.max(tl.max(tl.max(count, 3), 2), 1), 0)
    value = tl.zeros((RM, RN, TM, TN), tl.int32)  # no neuron is less
    for _ in range(most):
        pixel = tl.load(x + tl.load(index + entry) * images).to(tl.int32)
        value = tl.maximum(value, tl.load(sign + entry) * pixel - tl.load(constant + entry))
        entry = tl.minimum(entry + 1, last)  # once more the last: no new maximum
    result = tl.where(count > 0, value, 0) + tl.load(b + neuron)
    tl.store(y + neuron.to(tl.int64) * images + column, result.to(y.dtype.element_ty), inside)


def variants() -> list[Variant]:
    found = []
    for kind in ("i16", "i32", "u8"):
        types = {"x": f"*{kind}", "y": f"*{kind}"}
        types |= dict.fromkeys(("order", "first", "counts", "index", "sign", "constant", "b"), "*i32")
        found.append(variant(f"exact_sided {kind}", sided_kernel, types, TILE._asdict(), TILE.warps))
    return found
