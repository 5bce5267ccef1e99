"""One Adam step with the paper's ℓp weight decay, in place: see `linfdist.ops.adam`.

A program takes a row, the weights of one neuron, or any block where rows do not matter. The first pass over a row, for
its largest weight and its norm, reads it from memory; the later passes find it in the cache. Every rounding of the
update is that of the native engine (no fused multiplication, divisions and roots correctly rounded): without decay, and
with that of p = 2 and p = inf, the results have the engine's bits. At other p, the decay has a relative error of some
2^-17 at most.
"""

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from .launch import Variant, launch, tiles_of, variant

NO, ALL, LARGEST, POWER = 0, 1, 2, 3  # which weights decay: none, all alike (p = 2), the largest (p = inf), by eq. (6)
BLOCK = 1024


def adam_(
    w: Tensor, grad: Tensor, mean: Tensor, square: Tensor, lr: float, beta1: float, beta2: float, eps: float,
    decay: float, p: float, step: int, rows: int,
) -> None:  # fmt: skip
    rate, decay_rate = torch.tensor([lr, decay], dtype=torch.float32)  # the engine's roundings
    which = NO if decay == 0 else ALL if p == 2 else LARGEST if math.isinf(p) else POWER
    by_row = which in (LARGEST, POWER)
    launch(
        adam_kernel,
        (rows if w.numel() else 0) if by_row else tiles_of(w.numel(), BLOCK),
        w, grad, mean, square, w.numel() // max(rows, 1) if by_row else w.numel(),
        float(rate * decay_rate), p if which == POWER else 2.0, 1 - beta1, 1 - beta2,
        1 / math.sqrt(1 - beta2**step), eps, float(rate) / (1 - beta1**step), DECAY=which, BLOCK=BLOCK, warps=4,
    )  # fmt: skip


@triton.jit
def log2(ratio):
    """Compute log2 of 0 < ratio <= 1 with small relative error; the hardware's is absolute, and grows with p."""
    bits = ratio.to(tl.int32, bitcast=True)
    exponent = (bits - 0x3F3504F3) >> 23  # so that what is left lies between sqrt(1/2) and sqrt(2)
    rest = (bits - (exponent << 23)).to(tl.float32, bitcast=True)
    t = tl.div_rn(rest - 1.0, rest + 1.0)
    s = t * t
    series = 2.885390 + s * (0.9617967 + s * (0.5770780 + s * (0.4121986 + s * 0.3205989)))  # of 2 atanh(t) / ln 2
    return exponent.to(tl.float32) + t * series


@triton.jit
def adam_kernel(
    w, grad, mean, square, columns, decay, p, rate1, rate2, root, eps, step,
    DECAY: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    lane = tl.arange(0, BLOCK)
    by_row: tl.constexpr = DECAY > 1
    begin = tl.program_id(0).to(tl.int64) * (columns if by_row else BLOCK)
    end = begin + columns if by_row else tl.minimum(begin + BLOCK, columns)
    largest = 0.0
    at = begin
    if by_row:
        sizes, where = tl.full((BLOCK,), -1.0, tl.float32), lane + begin
        for i in range(begin, end, BLOCK):
            size = tl.abs(tl.load(w + i + lane, i + lane < end, 0.0))
            where = tl.where((size > sizes) & (i + lane < end), i + lane, where)
            sizes = tl.maximum(sizes, size)
        largest = tl.max(sizes, 0)
        at = tl.min(tl.where(sizes == largest, where, end), 0)  # the first of the largest weights
    norm = 0.0
    if DECAY == 3:
        largest = tl.maximum(largest, 1.1754944e-38)
        sums = tl.zeros((BLOCK,), tl.float32)
        for i in range(begin, end, BLOCK):
            size = tl.abs(tl.load(w + i + lane, i + lane < end, 0.0))
            sums += tl.exp2(p * log2(tl.div_rn(size, largest)))
        norm = log2(tl.maximum(tl.sum(sums, 0), 1.0)) / p  # its logarithm, relative to the largest weight
    for i in range(begin, end, BLOCK):
        inside = i + lane < end
        weight, g = tl.load(w + i + lane, inside, 0.0), tl.load(grad + i + lane, inside, 0.0)
        if DECAY == 1:
            weight -= decay * weight
        if DECAY == 2:
            weight = tl.where(i + lane == at, weight - decay * weight, weight)
        if DECAY == 3:
            ratio = log2(tl.div_rn(tl.abs(weight), largest)) - norm
            weight -= decay * tl.exp2((p - 2.0) * ratio) * weight
        m, v = tl.load(mean + i + lane, inside, 0.0), tl.load(square + i + lane, inside, 0.0)
        m += rate1 * (g - m)  # beta m + (1 - beta) g, without a rounded beta
        v += rate2 * (g * g - v)
        weight -= step * tl.div_rn(m, tl.sqrt_rn(v) * root + eps)
        tl.store(w + i + lane, weight, inside)
        tl.store(mean + i + lane, m, inside)
        tl.store(square + i + lane, v, inside)


def variants() -> list[Variant]:
    names = {NO: "none", ALL: "p=2", LARGEST: "p=inf", POWER: "finite p"}
    types: dict[str, str] = dict.fromkeys(("w", "grad", "mean", "square"), "*fp32")
    types |= dict.fromkeys(("decay", "p", "rate1", "rate2", "root", "eps", "step"), "fp32")
    found = []
    for which, name in names.items():
        constants: dict[str, Any] = {"DECAY": which, "BLOCK": BLOCK}
        found.append(variant(f"adam decay {name} fp32", adam_kernel, types, constants, 4))
    return found
