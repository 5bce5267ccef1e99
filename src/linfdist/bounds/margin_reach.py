"""Σ_h |w_jh − w_yh| r_h: how far the margin of two classes can move while their inputs move by ±r."""

from typing import Any

import torch
from torch import Tensor

# Custom operations, which torch.compile does not trace: how many labels a batch has is known only at run time.


@torch.library.custom_op("linfdist::margin_reach", mutates_args=())
def margin_reach(w: Tensor, half: Tensor, y: Tensor) -> Tensor:
    """Return Σ_h |w_jh − w_yh| half_h for all classes j: w (M, H), half (B, H), labels y (B,) -> (B, M).

    Images of one label have the same differences, so these are computed once per label, (M, H) at a time. With many
    classes, all (B, M, H) of them would be most of a training step's work. The backward pass computes them anew.
    """
    return reach_by_label(w, half, y)


def reach_by_label(w: Tensor, half: Tensor, y: Tensor) -> Tensor:
    """Compute `margin_reach` without a gradient, and without the overhead of a custom operation."""
    result = half.new_empty(len(y), len(w))
    for label, images in _by_label(y):
        result[images] = half[images] @ (w - w[label]).abs_().T
    return result


@torch.library.custom_op("linfdist::margin_reach_gradients", mutates_args=())
def _gradients(w: Tensor, half: Tensor, y: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    grad_w, grad_half = torch.zeros_like(w), torch.empty_like(half)
    for label, images in _by_label(y):
        difference, g = w - w[label], grad[images]
        grad_half[images] = g @ difference.abs()
        push = difference.sign_().mul_(g.T @ half[images])  # (M, H)
        grad_w += push
        grad_w[label] -= push.sum(0)
    return grad_w, grad_half


def _by_label(y: Tensor) -> list[tuple[int, Tensor]]:
    """Return each label that occurs, with the indices of its images."""
    order = y.argsort(stable=True)
    labels, counts = torch.unique_consecutive(y[order], return_counts=True)
    return list(zip(labels.tolist(), order.split(counts.tolist()), strict=True))


@margin_reach.register_fake
def _(w: Tensor, half: Tensor, y: Tensor) -> Tensor:
    return half.new_empty(len(y), len(w))


@_gradients.register_fake
def _(w: Tensor, half: Tensor, y: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(w), torch.empty_like(half)


def _save(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
    return *_gradients(*ctx.saved_tensors, grad), None


margin_reach.register_autograd(_backward, setup_context=_save)
