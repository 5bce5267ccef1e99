"""One Adam step with the paper's ℓp weight decay (eq. 6), in place.

Δw = −lr·λ·(|w| / ‖w‖ₚ)^(p−2)·w, the norm over the inputs of one neuron, then Adam. At p = ∞ only the largest weight of
each neuron decays; p = 2 is the usual decay. Where a backend has a kernel for it, both run in one pass over memory, in
float32; elsewhere in plain torch.
"""

import math

import torch
from torch import Tensor

from .backends import pick_kernels


def adam_step(
    w: Tensor, grad: Tensor, mean: Tensor, square: Tensor, *,
    lr: float, betas: tuple[float, float], eps: float, decay: float, p: float, step: int,
) -> None:  # fmt: skip
    """Update parameter `w` (rows are neurons) and its two moments; `step` counts from 1, p >= 2.

    The tensors have one shape and may lie in memory in any order. 1 − β is formed in float64, and the moments move by
    (1 − β)·(new − old): a β near 1 keeps its digits in float32.
    """
    kernels = pick_kernels(w, lambda kernels: kernels.unsupported(w, w)) if w.dtype == torch.float32 else None
    if kernels:
        own = [tensor.contiguous() for tensor in (w, mean, square)]  # copies of those that lie in another order
        rows = w.shape[0] if w.dim() > 1 else 1
        kernels.adam_(own[0], grad.contiguous(), own[1], own[2], lr, *betas, eps, decay, p, step, rows)
        for tensor, result in zip((w, mean, square), own, strict=True):
            if result is not tensor:
                tensor.copy_(result)
        return
    if not w.numel():
        return
    if decay:
        w -= lr * decay * decay_direction(w, p)
    mean.lerp_(grad, 1 - betas[0])
    square.lerp_(grad.square(), 1 - betas[1])
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
        return (first * rows).reshape(w.shape)
    ratio = size / largest.clamp(min=torch.finfo(w.dtype).tiny)
    norm = ratio.pow(p).sum(1, keepdim=True).pow(1 / p)
    return ((ratio / norm.clamp(min=1.0)).pow(p - 2) * rows).reshape(w.shape)
