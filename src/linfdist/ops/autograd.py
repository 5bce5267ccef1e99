"""Distances as functions of autograd: what each saves, and the gradients that its backend computes."""

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from . import operators
from .backends import as_images
from .geometry import Geometry, Ints


def _like(x: Tensor, y: Tensor) -> Tensor:
    """Return y (B, O, OH, OW) with as many dimensions as x. No view: autograd would not let views be changed."""
    return y if x.dim() == 4 else torch.ops.aten._unsafe_view.default(y, y.shape[:2])


class PlainDist(Function):
    """Any p, where autograd alone is at work (`backends.is_plain`): x and w may be images, or (B, I) and (O, I).

    The functions below do the same for `torch.func` and compilers, and take ten times as long around a small kernel.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, p: float, geometry: Geometry) -> Tensor:
        images, filters = as_images(x), as_images(w)
        ctx.p, ctx.geometry, ctx.shapes = p, geometry, (images.shape, filters.shape)
        if p == math.inf:
            values, where = operators.inf_dist_argmax(images, filters, geometry)
            y = _like(x, values)
            ctx.save_for_backward(y, where)
        else:
            y = _like(x, operators.p_dist(images, filters, p, geometry))
            ctx.save_for_backward(x, w, y)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        need_x, need_w = ctx.needs_input_grad[:2]
        again = torch.is_grad_enabled()  # then the gradient is to be differentiated, which its Function refuses
        if ctx.p == math.inf:
            y, where = ctx.saved_tensors
            inf_gradient = InfDistGradient.apply if again else InfDistGradient.forward
            shapes: tuple[Ints, Ints] = ctx.shapes
            dx, dw = inf_gradient(as_images(grad), as_images(y), where, *shapes, ctx.geometry, need_x, need_w)
        else:
            x, w, y = ctx.saved_tensors
            p = torch.scalar_tensor(ctx.p, dtype=torch.float64) if again else ctx.p
            p_gradient = PDistGradient.apply if again else PDistGradient.forward
            tensors = as_images(grad), as_images(x), as_images(w), as_images(y)
            dx, dw = p_gradient(*tensors, p, ctx.geometry, need_x, need_w)
        if grad.dim() == 2:
            dx, dw = dx.flatten(1) if need_x else dx, dw.flatten(1) if need_w else dw
        return dx if need_x else None, dw if need_w else None, None, None


class InfDist(Function):
    """p = inf: values and first arg-max."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, w: Tensor, geometry: Geometry) -> tuple[Tensor, Tensor]:
        return operators.inf_dist_argmax(x, w, geometry)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        x, w, ctx.geometry = inputs
        ctx.x_shape, ctx.w_shape = x.shape, w.shape
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(*output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        y, where = ctx.saved_tensors
        need_x, need_w = ctx.needs_input_grad[:2]
        dx, dw = InfDistGradient.apply(grad, y, where, ctx.x_shape, ctx.w_shape, ctx.geometry, need_x, need_w)
        return dx if need_x else None, dw if need_w else None, None


class PDist(Function):
    """Any p, known at run time."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, w: Tensor, p: Tensor, geometry: Geometry) -> Tensor:
        return operators.p_dist(x, w, p, geometry)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, w, p, ctx.geometry = inputs
        ctx.save_for_backward(x, w, output, p)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, w, y, p = ctx.saved_tensors
        need_x, need_w = ctx.needs_input_grad[:2]
        dx, dw = PDistGradient.apply(grad, x, w, y, p, ctx.geometry, need_x, need_w)
        return dx if need_x else None, dw if need_w else None, None, None


class _Gradient(Function):
    """A gradient that cannot be differentiated again. (`once_differentiable` gives zeros under `torch.func`.)"""

    generate_vmap_rule = True

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        raise NotImplementedError("the distances of linfdist have no second derivative")


class InfDistGradient(_Gradient):
    """(dx, dw) at p = inf."""

    @staticmethod
    def forward(
        grad: Tensor, y: Tensor, where: Tensor, x_shape: Ints, w_shape: Ints, geometry: Geometry,
        need_x: bool, need_w: bool,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        return operators.inf_dist_backward(grad, y, where, x_shape, w_shape, geometry, need_x, need_w)


class PDistGradient(_Gradient):
    """(dx, dw) at any p."""

    @staticmethod
    def forward(
        grad: Tensor, x: Tensor, w: Tensor, y: Tensor, p: Tensor, geometry: Geometry, need_x: bool, need_w: bool
    ) -> tuple[Tensor, Tensor]:
        return operators.p_dist_backward(grad, x, w, y, p, geometry, need_x, need_w)


class BoxDistGradient(_Gradient):
    """(d_lower, d_upper, dw) of both bounds."""

    @staticmethod
    def forward(
        grad_near: Tensor, grad_far: Tensor, nearest: Tensor, farthest: Tensor, near_where: Tensor, far_where: Tensor,
        x_shape: Ints, w_shape: Ints, geometry: Geometry, need_lower: bool, need_upper: bool, need_w: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        return operators.box_dist_backward(
            grad_near, grad_far, nearest, farthest, near_where, far_where,
            x_shape, w_shape, geometry, need_lower, need_upper, need_w,
        )  # fmt: skip


class BoxDist(Function):
    """Both bounds and where each is attained."""

    generate_vmap_rule = True

    @staticmethod
    def forward(lower: Tensor, upper: Tensor, w: Tensor, geometry: Geometry) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return operators.box_dist_argmax(lower, upper, w, geometry)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        lower, _, w, ctx.geometry = inputs
        ctx.x_shape, ctx.w_shape = lower.shape, w.shape
        ctx.mark_non_differentiable(*output[2:])
        ctx.save_for_backward(*output)

    @staticmethod
    def backward(ctx: Any, grad_near: Tensor, grad_far: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        need = ctx.needs_input_grad[:3]
        gradients = BoxDistGradient.apply(
            grad_near, grad_far, *ctx.saved_tensors, ctx.x_shape, ctx.w_shape, ctx.geometry, *need
        )
        return *(gradient if needed else None for gradient, needed in zip(gradients, need, strict=True)), None


class PlainBoxDist(Function):
    """The same where autograd alone is at work, see `PlainDist`: bounds and w may be images, or (B, I) and (O, I)."""

    @staticmethod
    def forward(ctx: Any, lower: Tensor, upper: Tensor, w: Tensor, geometry: Geometry) -> tuple[Tensor, Tensor]:
        images = as_images(lower), as_images(upper), as_images(w)
        nearest, farthest, *places = operators.box_dist_argmax(*images, geometry)
        near, far = _like(lower, nearest), _like(lower, farthest)
        ctx.geometry, ctx.shapes = geometry, (images[0].shape, images[2].shape)
        ctx.save_for_backward(near, far, *places)
        return near, far

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        near, far, *places = ctx.saved_tensors
        need = ctx.needs_input_grad[:3]
        gradient: Any = BoxDistGradient.apply if torch.is_grad_enabled() else BoxDistGradient.forward
        outputs = (as_images(tensor) for tensor in (*grads, near, far))
        gradients = gradient(*outputs, *places, *ctx.shapes, ctx.geometry, *need)
        rows = near.dim() == 2
        wanted = zip(gradients, need, strict=True)
        return *((each.flatten(1) if rows else each) if needed else None for each, needed in wanted), None


# The bare operators, as an exported program calls them, have the same gradients.
operators.register_gradient("inf_dist_argmax", InfDist)
operators.register_gradient("p_dist", PDist)
operators.register_gradient("box_dist_argmax", BoxDist)
torch.library.register_autograd("linfdist::inf_dist_backward", _Gradient.backward)
torch.library.register_autograd("linfdist::p_dist_backward", _Gradient.backward)
torch.library.register_autograd("linfdist::box_dist_backward", _Gradient.backward)
