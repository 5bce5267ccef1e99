"""Integer dist layers: subtraction, |·|, max and addition without a rounding anywhere.

Activations are feature-major, x (I, B) -> y (O, B), so that vectors run over the batch and a neuron may look at any
inputs at no cost. All values are int16, or all int32; biases are int32. The caller has proved that no x - w and no
output overflows that type: kernels do not look, the form in plain torch raises OverflowError. Within that promise the
bits are the same on every backend, device, instruction set and number of threads.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from .backends import Kernels, pick_kernels

DTYPES = (torch.int16, torch.int32)
SLICE = 256  # inputs per slice: lines of 128 bytes that about fit L1; measured, and not critical
_BLOCK = 1 << 22  # elements of the reference's scratch


def dense(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """y[o, n] = max_i |x[i, n] - w[o, i]| + b[o].

    x (I, B), w (O, I), b (O,) -> (O, B). At least one input.
    """
    _check_types(x, b, w=w)
    if x.dim() != 2 or w.dim() != 2 or w.shape[1] != x.shape[0] or b.shape != w.shape[:1] or not x.shape[0]:
        raise ValueError(
            "need x (I, B), w (O, I) and b (O,) with at least one input, "
            f"got {tuple(x.shape)}, {tuple(w.shape)} and {tuple(b.shape)}"
        )
    if kernels := _kernels(x):
        return kernels.exact_dense(x.contiguous(), w.contiguous(), b.contiguous())
    step = max(1, _BLOCK // max(1, x.numel()))
    wide = x.long()
    rows = [(wide - part.long()[:, :, None]).abs_().amax(1) for part in w.split(step)]
    return _narrow(torch.cat(rows) if rows else wide[:0], b, x.dtype)


class Sides(NamedTuple):
    """Terms x - w and w - x of a layer, each one side of an |x - w|, in runs: the arguments of `sided` between x and b.

    neuron (R,) int32, start (R + 1,) int64, middle (R,) int64, inputs (K,) int32, weight (K,).
    """

    neuron: Tensor
    start: Tensor
    middle: Tensor
    inputs: Tensor
    weight: Tensor


def sided(
    x: Tensor, neuron: Tensor, start: Tensor, middle: Tensor, inputs: Tensor, weight: Tensor, b: Tensor
) -> Tensor:
    """y[o, n] = max(0, x[inputs[k], n] - weight[k], ..., weight[k] - x[inputs[k], n], ...) + b[o].

    Run r belongs to neuron[r]: its entries start[r] <= k < middle[r] give x - w, and middle[r] <= k < start[r + 1] give
    w - x. x (I, B), b (O,) -> (O, B). `one_sided` makes the runs, in a cache-friendly order; this is the fastest way to
    evaluate a pruned layer on many images.
    """
    _check_types(x, b, weight=weight)
    arguments = (neuron, start, middle, inputs, weight)
    _check_runs(x, *arguments, b)
    if kernels := _kernels(x):
        return kernels.exact_sided(*(each.contiguous() for each in (x, *arguments, b)))
    wide, ends = x.long(), start.tolist()
    y = torch.zeros(len(b), x.shape[1], dtype=torch.int64)
    for o, first, between, end in zip(neuron.tolist(), ends, middle.tolist(), ends[1:], strict=False):
        d = wide[inputs[first:end].long()] - weight[first:end].long()[:, None]  # (k, B)
        d[between - first :].neg_()
        y[o] = torch.maximum(y[o], d.amax(0))
    return _narrow(y, b, x.dtype)


def one_sided(start: Tensor, index: Tensor, weight: Tensor, low: Tensor, high: Tensor) -> Sides:
    """Split the entries of a pruned layer into single sides, for inputs low <= x <= high, (I,) each.

    For these inputs the function stays the same. Neuron o has the entries start[o] <= k < start[o + 1]:
    |x[index[k]] - weight[k]|. start (O + 1,) int64, index (K,) int32, weight (K,).

    Within these ranges neuron o never falls below its floor, the largest of its entries' smallest |x - w|. A side that
    cannot exceed the floor never wins and is left out, except the one that attains the floor. An entry that can win on
    both sides appears twice; after lossless pruning there are hardly any.
    """
    neurons = len(start) - 1
    neuron = torch.arange(neurons).repeat_interleave(start.diff())  # (K,)
    w = weight.long()
    lowest, highest = low.long()[index.long()] - w, high.long()[index.long()] - w  # of x - w
    near = torch.maximum(lowest, -highest).clamp_min_(0)
    floor = torch.zeros(neurons, dtype=torch.int64).scatter_reduce_(0, neuron, near, "amax")
    k = torch.arange(len(w))
    holder = torch.full((neurons,), len(w)).scatter_reduce_(0, neuron, k.where(near == floor[neuron], len(w)), "amin")
    holds = k == holder[neuron]  # the first of each neuron that attains its floor
    above = (highest > floor[neuron]) | (holds & (lowest >= -highest))
    below = (-lowest > floor[neuron]) | (holds & (lowest < -highest))
    largest = int(torch.maximum(highest, -lowest).max()) if len(w) else 0
    if largest > torch.iinfo(weight.dtype).max:
        raise OverflowError(f"values reach {largest}, which {weight.dtype} cannot hold: use a wider type")
    entry = torch.cat([k[above], k[below]])
    side = torch.arange(2).repeat_interleave(torch.tensor([int(above.sum()), int(below.sum())]))
    return _runs(entry, neuron[entry], side, index, weight, neurons, len(low))


def _runs(
    entry: Tensor, neuron: Tensor, side: Tensor, index: Tensor, weight: Tensor, neurons: int, inputs: int
) -> Sides:
    """Sort entries by slices of the inputs that fit L1, within a slice into one run per neuron.

    Runs of equal length stand together, so that the processor can predict where they end.
    """
    slices = max(1, -(-inputs // SLICE))
    part = index[entry].long() * slices // max(1, inputs)  # (K,)
    run = part * neurons + neuron
    counts = torch.zeros(slices * neurons, 2, dtype=torch.int64)  # (runs, sides)
    counts.index_put_((run, side), torch.ones_like(run), accumulate=True)
    used = counts.sum(1).nonzero()[:, 0]
    used = used[counts[used, 1].argsort(stable=True)]
    used = used[counts[used, 0].argsort(stable=True)]
    used = used[(used // neurons).argsort(stable=True)]  # by slice, then length
    rank = torch.zeros(len(counts), dtype=torch.int64)
    rank[used] = torch.arange(len(used))
    order = (2 * rank[run] + side).argsort(stable=True)
    start = torch.cat([torch.zeros(1, dtype=torch.int64), counts[used].sum(1).cumsum(0)])
    entry = entry[order]
    return Sides((used % neurons).int(), start, start[:-1] + counts[used, 0], index[entry], weight[entry])


class Chain(NamedTuple):
    """Layers one after the other, as `network` takes them; `chain` makes it.

    sizes: of the input and of each layer's output; runs: where each layer's runs begin, and their number; the tensors
    are those of all layers' `Sides` and biases, concatenated.
    """

    sizes: list[int]
    runs: list[int]
    sides: Sides
    b: Tensor


def chain(inputs: int, layers: Sequence[tuple[Sides, Tensor]]) -> Chain:
    """Chain the sided layers (sides, b) of one dtype; `inputs` is the number of inputs of the first."""
    parts = [sides for sides, _ in layers]
    sizes, runs, entries = [inputs], [0], 0
    starts, middles = [], []
    for sides, b in layers:
        _check_runs(torch.zeros(sizes[-1], 0, dtype=sides.weight.dtype), *sides, b)
        starts.append(sides.start[:-1] + entries)
        middles.append(sides.middle + entries)
        sizes.append(len(b))
        runs.append(runs[-1] + len(sides.neuron))
        entries += len(sides.weight)
    joined = Sides(
        torch.cat([part.neuron for part in parts]),
        torch.cat([*starts, torch.tensor([entries])]),
        torch.cat(middles),
        torch.cat([part.inputs for part in parts]),
        torch.cat([part.weight for part in parts]),
    )
    return Chain(sizes, runs, joined, torch.cat([b for _, b in layers]))


def network(images: Tensor, k: int, layers: Chain) -> Tensor:
    """Compute minus the output of all layers, one after the other, for images times 2^k: (B, I) uint8 -> (B, O) int32.

    Images may have the type of the weights instead, with k = 0: they are then inputs of the first layer.

    The same as `sided` for each layer, in one go: some images at a time pass through all layers, and nothing in between
    goes to memory. Weights may be uint8, twice as many a vector as int16, if all biases are 0 and the caller has proved
    that no output exceeds 255.
    """
    weights = layers.sides.weight.dtype
    if images.dtype not in (torch.uint8, weights) or images.dim() != 2 or images.shape[1] != layers.sizes[0]:
        raise ValueError(f"need images uint8 (B, {layers.sizes[0]}), got {images.dtype} {tuple(images.shape)}")
    if k and images.dtype != torch.uint8:
        raise ValueError(f"k = {k}: only 8-bit images are multiplied by 2^k, these are {images.dtype}")
    if layers.sides.weight.dtype == torch.uint8 and layers.b.any():
        raise ValueError("layers of bytes have no biases")
    if kernels := _kernels(images):
        return kernels.exact_network(images.contiguous(), k, layers.sizes, layers.runs, *layers.sides, layers.b)
    neuron, start, middle, inputs, weight = layers.sides
    bytes_ = weight.dtype == torch.uint8
    if bytes_:
        weight = weight.to(torch.int16)
    x = (images.T.to(torch.int64) << k).to(weight.dtype)  # (I, B)
    first = 0  # of the layer's neurons
    for (begin, end), size in zip(pairwise(layers.runs), layers.sizes[1:], strict=True):
        entry = start[begin]
        part = slice(int(entry), int(start[end]))
        x = sided(
            x, neuron[begin:end], start[begin : end + 1] - entry, middle[begin:end] - entry, inputs[part], weight[part],
            layers.b[first : first + size],
        )  # fmt: skip
        first += size
        if bytes_ and x.numel() and int(x.max()) > 255:
            raise OverflowError(f"outputs reach {int(x.max())}, which torch.uint8 cannot hold: use a wider type")
    return -x.T.to(torch.int32).contiguous()


def _kernels(x: Tensor) -> Kernels | None:
    return pick_kernels(x, lambda kernels: kernels.exact_unsupported(x))


def _narrow(largest: Tensor, b: Tensor, dtype: torch.dtype) -> Tensor:
    """Return largest + b in the layer's type; both must fit it."""
    y, fits = largest + b.long()[:, None], torch.iinfo(dtype)
    if y.numel() and (max(int(largest.max()), int(y.max())) > fits.max or int(y.min()) < fits.min):
        raise OverflowError(
            f"|x - w| reaches {int(largest.max())}, outputs {int(y.min())} ... {int(y.max())}: {dtype} cannot hold "
            "that, use a wider type"
        )
    return y.to(dtype)


def _check_types(x: Tensor, b: Tensor, **same: Tensor) -> None:
    if x.dtype not in DTYPES:
        raise TypeError(f"x must be int16 or int32, got {x.dtype}")
    for name, tensor in same.items():
        if tensor.dtype != x.dtype:
            raise TypeError(f"{name} must be {x.dtype}, like x, got {tensor.dtype}")
    if b.dtype != torch.int32:
        raise TypeError(f"b must be int32, got {b.dtype}")


def _check_runs(
    x: Tensor, neuron: Tensor, start: Tensor, middle: Tensor, inputs: Tensor, weight: Tensor, b: Tensor
) -> None:
    runs, entries = neuron.numel(), weight.numel()
    _check_vectors(
        x, neuron=(neuron, torch.int32, runs), start=(start, torch.int64, runs + 1), middle=(middle, torch.int64, runs),
        inputs=(inputs, torch.int32, entries), weight=(weight, x.dtype, entries), b=(b, torch.int32, b.numel()),
    )  # fmt: skip
    _check_start(start, entries)
    wrong = (middle < start[:-1]) | (middle > start[1:])
    if wrong.any():
        run = int(wrong.nonzero()[0])
        raise ValueError(f"middle[{run}] = {middle[run]} lies outside run {run}, {start[run]} ... {start[run + 1]}")
    _check_range("inputs", inputs, x.shape[0])
    _check_range("neuron", neuron, len(b))


def _check_vectors(x: Tensor, **vectors: tuple[Tensor, torch.dtype, int]) -> None:
    """Raise unless x (I, B) has an input and each vector has its dtype and length."""
    if x.dim() != 2 or not x.shape[0]:
        raise ValueError(f"need x (I, B) with at least one input, got {tuple(x.shape)}")
    for name, (vector, dtype, length) in vectors.items():
        if vector.dtype != dtype:
            raise TypeError(f"{name} must be {dtype}, got {vector.dtype}")
        if vector.shape != (length,):
            raise ValueError(f"{name} must have shape ({length},) to fit the rest, got {tuple(vector.shape)}")


def _check_start(start: Tensor, entries: int) -> None:
    if int(start[0]) != 0 or int(start[-1]) != entries:
        raise ValueError(f"start must run from 0 to {entries}, the number of entries, got {start[0]} to {start[-1]}")
    if (start.diff() < 1).any():
        number = int((start.diff() < 1).nonzero()[0])
        raise ValueError(f"run {number} has no entries, so its maximum is undefined")


def _check_range(name: str, numbers: Tensor, bound: int) -> None:
    if numbers.numel() and not 0 <= int(numbers.min()) <= int(numbers.max()) < bound:
        raise ValueError(f"{name} must lie in 0 ... {bound - 1}, got {numbers.min()} ... {numbers.max()}")
