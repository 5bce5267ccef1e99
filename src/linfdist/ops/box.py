"""Interval bounds of the p = inf distance: tight per neuron, differentiable, linear and convolutional."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from . import kernels
from .dist import InfDistGradient
from .geometry import POINT, Geometry, IntOrPair, check_fit, make_geometry
from .inputs import rows_of, same_precision, wants_gradient


def dist_box(lower: Tensor, upper: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    """The smallest and the largest `dist(x, w)` over all lower <= x <= upper: Appendix B for the neuron of eq. (2).

    lower[..., o] = max_i max(lower[..., i] - w[o, i], w[o, i] - upper[..., i], 0)
    upper[..., o] = max_i max(upper[..., i] - w[o, i], w[o, i] - lower[..., i])

    lower and upper (..., I), w (O, I) -> two tensors (..., O). Both bounds are attained, each neuron for itself.

    Gradient: +-1 to the bound and the weight that attain the first maximum (`x - w` before `w - x` if equal), 0 where
    the result is 0; no second derivative.

    Numbers: same bits from every backend, and for lower <= x <= upper the computed `dist(x, w)` lies between the
    computed bounds, without slack. NaN in a bound is no error: it propagates. `lower > upper` anywhere raises
    ValueError in eager mode; it is not looked for under `torch.compile`, `torch.export` and `torch.func`.
    """
    lower, upper, w = same_precision(lower=lower, upper=upper, w=w)
    if lower.dim() < 1 or w.dim() != 2 or lower.shape[-1] != w.shape[1] or lower.shape != upper.shape:
        raise ValueError(
            f"need lower (..., I), upper (..., I) and w (O, I), "
            f"got {tuple(lower.shape)}, {tuple(upper.shape)} and {tuple(w.shape)}"
        )
    _check_order(lower, upper)
    bounds = _dist_box(rows_of(lower), rows_of(upper), w[:, :, None, None], POINT)
    shape = (*lower.shape[:-1], w.shape[0])
    return bounds[0].reshape(shape), bounds[1].reshape(shape)


def dist_box_conv2d(
    lower: Tensor,
    upper: Tensor,
    w: Tensor,
    stride: IntOrPair = 1,
    padding: IntOrPair = 0,
    dilation: IntOrPair = 1,
    groups: int = 1,
) -> tuple[Tensor, Tensor]:
    """The smallest and the largest `dist_conv2d(x, w)` over all lower <= x <= upper (Appendices B and F).

    lower and upper (N, C, H, W) or (C, H, W), w (O, C/groups, KH, KW) -> two tensors (N, O, OH, OW) or (O, OH, OW).
    Padding is the box [0, 0]. Gradients, numerical promises and the check of lower <= upper are those of `dist_box`.
    """
    lower, upper, w = same_precision(lower=lower, upper=upper, w=w)
    if lower.dim() not in (3, 4) or lower.shape != upper.shape:
        raise ValueError(
            "lower and upper must have one shape, (N, C, H, W) or (C, H, W), "
            f"got {tuple(lower.shape)} and {tuple(upper.shape)}"
        )
    geometry = make_geometry(stride, padding, dilation, groups)
    single = lower.dim() == 3
    low, high = (lower[None], upper[None]) if single else (lower, upper)
    check_fit(low, w, geometry)
    _check_order(lower, upper)
    nearest, farthest = _dist_box(low, high, w, geometry)
    return (nearest[0], farthest[0]) if single else (nearest, farthest)


def _dist_box(lower: Tensor, upper: Tensor, w: Tensor, geometry: Geometry) -> tuple[Tensor, Tensor]:
    if wants_gradient(lower, upper, w):
        nearest, farthest, _, _ = BoxDist.apply(lower, upper, w, geometry)
        return nearest, farthest
    return kernels.box_dist(lower, upper, w, *geometry)


def _check_order(lower: Tensor, upper: Tensor) -> None:
    if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active() or lower.is_meta:
        return
    wrong = lower > upper
    if wrong.any():
        position = tuple(wrong.nonzero()[0].tolist())
        raise ValueError(
            f"lower > upper at {position}: {lower[position].item()!r} > {upper[position].item()!r} "
            f"(first of {int(wrong.sum())} places)"
        )


class BoxDist(Function):
    """Both bounds and where each is attained."""

    generate_vmap_rule = True

    @staticmethod
    def forward(lower: Tensor, upper: Tensor, w: Tensor, geometry: Geometry) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return kernels.box_dist_argmax(lower, upper, w, *geometry)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        lower, _, w, ctx.geometry = inputs
        ctx.x_shape, ctx.w_shape = lower.shape, w.shape
        ctx.mark_non_differentiable(*output[2:])
        ctx.save_for_backward(*output)

    @staticmethod
    def backward(ctx: Any, grad_near: Tensor, grad_far: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        nearest, farthest, near_where, far_where = ctx.saved_tensors
        need_lower, need_upper, need_w = ctx.needs_input_grad[:3]

        def through(bound: Tensor, grad: Tensor, where: Tensor, keep: Tensor, need_x: bool) -> tuple[Tensor, Tensor]:
            """The gradient of one result that passes through one bound: where `keep`."""
            return InfDistGradient.apply(
                grad.where(keep, 0.0), bound, where, ctx.x_shape, ctx.w_shape, ctx.geometry, need_x, need_w
            )

        # `x - w` attains the smaller result at the lower bound and the larger one at the upper; `w - x` the reverse.
        near_lower, w1 = through(nearest, grad_near, near_where, near_where >= 0, need_lower)
        near_upper, w2 = through(nearest, grad_near, near_where, near_where < 0, need_upper)
        far_upper, w3 = through(farthest, grad_far, far_where, far_where >= 0, need_upper)
        far_lower, w4 = through(farthest, grad_far, far_where, far_where < 0, need_lower)
        return (
            near_lower + far_lower if need_lower else None,
            near_upper + far_upper if need_upper else None,
            (w1 + w2) + (w3 + w4) if need_w else None,
            None,
        )


kernels.register_gradient("box_dist_argmax", BoxDist)
