"""The sorted sum of distances: Σ c[k] · (k-th largest of |x − w|), its gradient and its bounds over boxes."""

import math
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from ..eps import round_down
from ..nn import Box

TILE = 1 << 13  # pairs of a sample and a neuron per tile, whose largest distances stay in the cache
AT_ONCE = 16  # inputs that the backward pass handles together


def geometric(keep: float, terms: int) -> tuple[float, ...]:
    """Return the weights c[k] = q (1 − q)^(k−1) / (1 − (1 − q)^K) for k = 1, …, K, whose sum is at most 1.

    They are those of the expectation of the largest distance while each input is kept with probability q = keep, cut
    off after K = terms. They are rounded down to floats of 24 bits, so each is exact in float32 and float64.
    """
    kept = Fraction(keep)
    whole = 1 - (1 - kept) ** terms  # exact: differences of floats near 1 would lose all digits of a small q
    parts = (math.frexp(round_down(kept * (1 - kept) ** k / whole)) for k in range(terms))
    return tuple(math.ldexp(math.floor(math.ldexp(mantissa, 24)), power - 24) for mantissa, power in parts)


def sorted_sum(x: Tensor, w: Tensor, shares: Sequence[float]) -> Tensor:
    """Return y[b, o] = Σ_k shares[k] · (the k-th largest of |x[b, i] − w[o, i]| over i): (B, O). x (B, I), w (O, I).

    If there are fewer inputs than shares, the missing distances count 0. The gradient is shares[k] sign(x − w) at the
    k-th largest; inputs that tie get the mean of their shares; there is no second derivative. Memory is limited to some
    tiles, plus the K distances of each y if gradients are needed. NaN propagates.
    """
    y: Tensor = SortedSum.apply(x, w, tuple(shares))
    return y


class SortedSum(Function):
    """`sorted_sum` for autograd: it saves the largest distances of each pair of a sample and a neuron."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, shares: tuple[float, ...]) -> Tensor:
        parts = []
        ctx.shares, ctx.largest = shares, []
        for few in _tiles(x, w):
            largest = _largest(few, w, len(shares), lambda value, weight: (value - weight).abs_())
            parts.append(_weigh(largest, shares))
            if any(ctx.needs_input_grad[:2]):
                ctx.largest.append(largest)
        ctx.save_for_backward(x, w)
        return torch.cat(parts) if parts else x.new_zeros(0, len(w))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        x, w = ctx.saved_tensors
        shares, inputs = x.new_tensor(ctx.shares)[:, None], x.shape[1]
        dx, dw, first = x.new_zeros(x.numel()), w.new_zeros(w.numel()), 0
        for few, up, largest in zip(_tiles(x, w), _tiles(grad, w), ctx.largest, strict=True):
            for i0 in range(0, inputs, AT_ONCE):
                part = slice(i0, i0 + AT_ONCE)
                apart = few[:, None, part] - w[:, part]  # (b, O, i)
                size = apart.abs()
                counts = size >= largest[-1, :, :, None]  # True for the K largest distances of a pair, and their ties
                row, neuron, i = counts.nonzero().unbind(1)
                ranks = size[row, neuron, i] == largest[:, row, neuron]  # (K, n)
                share = (ranks * shares).sum(0) / ranks.sum(0).clamp_(min=1)
                push = share * apart[row, neuron, i].sign() * up[row, neuron]
                # On a CPU, index_add_ adds one after another, so in a fixed order.
                dx.index_add_(0, (first + row) * inputs + i0 + i, push)
                dw.index_add_(0, neuron * inputs + i0 + i, push, alpha=-1)
            first += len(few)
        return dx.view_as(x), dw.view_as(w), None


def sorted_sum_box(box: Box, w: Tensor, shares: Sequence[float]) -> Box:
    """Return the smallest and the largest `sorted_sum` over a box (B, I), as computed.

    The k-th largest distance is monotone in each of the distances, and so is the sum, as no share is negative.
    """
    lower, upper = [], []
    for low, high in zip(_tiles(box.lower, w), _tiles(box.upper, w), strict=True):
        ends = torch.stack([low, high])  # (2, b, I)
        near = _largest(ends, w, len(shares), lambda x, w: torch.maximum(x[0] - w, w - x[1]).clamp_(min=0.0))
        far = _largest(ends, w, len(shares), lambda x, w: torch.maximum(x[1] - w, w - x[0]))
        lower.append(_weigh(near, shares))
        upper.append(_weigh(far, shares))
    nothing = box.lower.new_zeros(0, len(w))
    return Box(torch.cat(lower) if lower else nothing, torch.cat(upper) if upper else nothing)


def _rows(w: Tensor) -> int:
    return max(1, TILE // max(1, len(w)))


def _tiles(x: Tensor, w: Tensor) -> Iterator[Tensor]:
    """Yield the samples (B, I), a few at a time; nothing if B = 0."""
    return (few for few in x.split(_rows(w)) if len(few))


def _largest(x: Tensor, w: Tensor, count: int, term: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Return the `count` largest of term(x[..., i], w[o, i]) >= 0 over i, in order: (count, b, O). x (..., b, I).

    A number v that enters the sorted list t takes its place by t[k] <- median of t[k], v and t[k−1].
    """
    found = x.new_zeros(count + 1, x.shape[-2], len(w))
    found[0] = torch.inf
    other = found.clone()
    for i, weight in enumerate(w.T.contiguous()):
        torch.clamp(term(x[..., i, None], weight)[None], found[1:], found[:-1], out=other[1:])
        found, other = other, found
    return found[1:]


def _weigh(largest: Tensor, shares: Sequence[float]) -> Tensor:
    """Return Σ shares[k] · largest[k]: (b, O). Products are added one after another, so that the order is fixed."""
    y = largest[0] * shares[0]
    for each, share in zip(largest[1:], shares[1:], strict=True):
        y = y + each * share
    return y
