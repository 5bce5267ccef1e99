"""The losses, on logits z (B, M) of a network that is L = 1/std-Lipschitz in pixels: thresholds and ε come times L."""

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..nn import Head


def shortfalls(z: Tensor, y: Tensor, threshold: float) -> Tensor:
    """m_j = z_j - z_y + t, with m_y = 0: how much each class lacks to be beaten by the threshold. (B, M)"""
    m = z - z.gather(1, y[:, None]) + threshold
    return m.scatter(1, y[:, None], 0.0)


def hinge_loss(z: Tensor, y: Tensor, threshold: float, mean_weight: float = 0.25) -> Tensor:
    """Multi-class hinge loss: (1 - a) max_j [m_j]₊ + a mean_j [m_j]₊, averaged over the batch."""
    m = shortfalls(z, y, threshold).clamp(min=0)
    per_sample = (1 - mean_weight) * m.amax(1)
    if mean_weight > 0:
        per_sample = per_sample + mean_weight * m.mean(1)
    return per_sample.mean()


def clipped_hinge_loss(z: Tensor, y: Tensor, threshold: float) -> Tensor:
    """max_j clip(m_j / t, 0, 1): a misclassified image counts 1, however far off it is (Zhang et al., ICLR 2022)."""
    return (shortfalls(z, y, threshold).amax(1) / threshold).clamp(0, 1).mean()


class ScaledCrossEntropy(nn.Module):
    """Clipped hinge + λ · cross-entropy of s·z, with a learned scale s that never enters a certified output."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, z: Tensor, y: Tensor, threshold: float, weight: float) -> Tensor:
        """The loss of logits `z` for labels `y`."""
        return clipped_hinge_loss(z, y, threshold) + weight * F.cross_entropy(self.scale * z, y)


class _Spread(torch.autograd.Function):
    """(w (M, H), half (B, H), y) -> Σ_h |w_jh - w_yh| half_h, (B, M).

    By hand, because the (B, M, H) differences are large with many classes: a few images at a time stay in the cache.
    """

    BLOCK = 1 << 19  # elements at a time

    @staticmethod
    def forward(ctx: Any, w: Tensor, half: Tensor, y: Tensor) -> Tensor:
        ctx.save_for_backward(w, half, y)
        parts = [
            torch.bmm((w - w[labels, None]).abs_(), values[:, :, None])[:, :, 0]
            for labels, values in _Spread.pieces(w, y, half)
        ]
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        w, half, y = ctx.saved_tensors
        grad_w, grad_half = torch.zeros_like(w), []
        for labels, values, g in _Spread.pieces(w, y, half, grad):
            difference = w - w[labels, None]  # (b, M, H)
            grad_half.append(torch.bmm(g[:, None], difference.abs())[:, 0])
            push = difference.sign_().mul_(g[:, :, None]).mul_(values[:, None])
            grad_w += push.sum(0)
            grad_w.index_add_(0, labels, push.sum(1), alpha=-1)
        return grad_w, torch.cat(grad_half), None

    @staticmethod
    def pieces(w: Tensor, *batch: Tensor) -> Iterator[tuple[Tensor, ...]]:
        return zip(*(each.split(max(1, _Spread.BLOCK // w.numel())) for each in batch), strict=True)


def worst_margins(head: Head, features: Tensor, y: Tensor, eps: float) -> Tensor:
    """Upper bounds of z_j - z_y while each feature moves by ±eps: IBP, last layer merged with the difference (eq. 9).

    (B, M), 0 at the label.
    """
    first, second = head.hidden.scaled_weight(), head.output.scaled_weight()
    centre = F.linear(features, first, head.hidden.bias)  # (B, hidden)
    radius = eps * first.abs().sum(1)  # (hidden,)
    upper, lower = torch.tanh(centre + radius), torch.tanh(centre - radius)
    mid, half = (upper + lower) / 2, (upper - lower) / 2
    z = F.linear(mid, second, head.output.bias)  # (B, M)
    return z - z.gather(1, y[:, None]) + _Spread.apply(second, half, y)


def ibp_loss(head: Head, features: Tensor, z: Tensor, y: Tensor, eps: float, kappa: float) -> Tensor:
    """κ · natural cross-entropy + (1 - κ) · cross-entropy of the worst case, as in the paper's formula."""
    worst = F.cross_entropy(worst_margins(head, features, y, eps), y)
    if kappa == 0:
        return worst
    return kappa * F.cross_entropy(z, y) + (1 - kappa) * worst
