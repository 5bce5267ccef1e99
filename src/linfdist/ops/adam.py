"""One Adam step with the paper's ℓp weight decay (eq. 6), in place.

Δw = −lr·λ·(|w| / ‖w‖ₚ)^(p−2)·w, the norm over the inputs of one neuron, then Adam. At p = ∞ only the largest weight of
each neuron decays; p = 2 is the usual decay. On the CPU both run in one native pass over memory;
elsewhere in plain torch.
"""

import math
import os

import torch
from torch import Tensor

from .backends import native


def adam_step(
    w: Tensor, grad: Tensor, mean: Tensor, square: Tensor, *,
    lr: float, betas: tuple[float, float], eps: float, decay: float, p: float, step: int,
) -> None:  # fmt: skip
    """Update parameter `w` (rows are neurons) and its two moments; `step` counts from 1, p >= 2."""
    forced = os.environ.get("LINFDIST_BACKEND")
    if w.dtype == torch.float32 and forced != "reference" and not native.unsupported(w, w):
        rows = w.shape[0] if w.dim() > 1 else 1
        native.adam_(w, grad.contiguous(), mean, square, lr, *betas, eps, decay, p, step, rows)
        return
    if decay:
        w -= lr * decay * decay_direction(w, p)
    mean.mul_(betas[0]).add_(grad, alpha=1 - betas[0])
    square.mul_(betas[1]).addcmul_(grad, grad, value=1 - betas[1])
    scale = (square / (1 - betas[1] ** step)).sqrt_().add_(eps)
    w.addcdiv_(mean, scale, value=-lr / (1 - betas[0] ** step))


def decay_direction(w: Tensor, p: float) -> Tensor:
    """(|w| / ‖w‖ₚ)^(p−2)·w, the norm over each w[o]."""
    if p == 2:
        return w
    rows = w.flatten(1) if w.dim() > 1 else w[None]
    size = rows.abs()
    largest = size.amax(1, keepdim=True)
    if math.isinf(p):
        first = torch.zeros_like(rows).scatter_(1, size.argmax(1, keepdim=True), 1.0)
        return (first * rows).view_as(w)
    ratio = size / largest.clamp(min=torch.finfo(w.dtype).tiny)
    norm = ratio.pow(p).sum(1, keepdim=True).pow(1 / p)
    return ((ratio / norm.clamp(min=1.0)).pow(p - 2) * rows).view_as(w)
