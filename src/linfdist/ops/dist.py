"""The distance of inputs to weights: linear and convolutional, any p in [1, inf], differentiable."""

import math
import sys
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from . import batching as batching  # registers the operators' batching rules
from . import kernels
from .backends import Ints
from .geometry import POINT, Geometry, IntOrPair, check_fit, make_geometry
from .inputs import check_power, rows_of, same_precision, wants_gradient


def dist(x: Tensor, w: Tensor, p: float | Tensor = math.inf) -> Tensor:
    """Distance from each vector of `x` to each row of `w`: the neuron of eq. (2), without its bias.

    p = inf:     y[..., o] = max_i |x[..., i] - w[o, i]|
    finite p:    y[..., o] = (sum_i |x[..., i] - w[o, i]|^p)^(1/p), the relaxation for training of Section 5.2

    x (..., I), w (O, I) -> (..., O), all float32 or all float64; halves are computed in float32 inside autocast and
    refused elsewhere. p is a number, or a 0-dim tensor, in [1, inf]. Without inputs (I = 0) the distance is 0.

    Gradient for x (that for w is its negative), summed over o:
      p = inf:   sign(x - w) at the first arg-max
      finite p:  sign(x - w) (|x - w| / y)^(p - 1)
    and 0 where the distance is 0. There is neither a second derivative nor forward mode: both raise an error.

    Numbers: at p = inf every backend gives the same bits. For finite p nothing over- or underflows on the way
    (p up to 10^4); in float32 the relative error is at most 1e-6, and that of the gradient at most 5e-4 of its largest
    entry up to p = 1000, whatever the number of inputs (tested up to 65,536). NaN and infinity propagate. Same bits for
    any number of threads.
    """
    x, w = same_precision(x=x, w=w)
    if x.dim() < 1 or w.dim() != 2 or x.shape[-1] != w.shape[1]:
        raise ValueError(f"need x (..., I) and w (O, I), got {tuple(x.shape)} and {tuple(w.shape)}")
    if x.dim() == 2 and kernels.is_plain(x, w):
        return _plain_dist(x, w, p, POINT)
    return _dist(rows_of(x), w[:, :, None, None], p, POINT).reshape(*x.shape[:-1], w.shape[0])


def dist_conv2d(
    x: Tensor,
    w: Tensor,
    p: float | Tensor = math.inf,
    stride: IntOrPair = 1,
    padding: IntOrPair = 0,
    dilation: IntOrPair = 1,
    groups: int = 1,
) -> Tensor:
    """Distance from each window of the images `x` to each kernel of `w` (Appendix F): `dist` of the unfolded image.

    x (N, C, H, W) or (C, H, W), w (O, C/groups, KH, KW) -> (N, O, OH, OW) or (O, OH, OW), sizes as in
    `torch.nn.Conv2d`. Padding is the value 0. The arg-max at p = inf is the first in the order (C/groups, KH, KW).
    Gradients, dtypes and numerical promises are those of `dist`. The unfolded input never exists as a whole.
    """
    x, w = same_precision(x=x, w=w)
    if x.dim() not in (3, 4):
        raise ValueError(f"x must have shape (N, C, H, W) or (C, H, W), got {tuple(x.shape)}")
    geometry = make_geometry(stride, padding, dilation, groups)
    images = x if x.dim() == 4 else x[None]
    check_fit(images, w, geometry)
    y = (_plain_dist if kernels.is_plain(images, w) else _dist)(images, w, p, geometry)
    return y if x.dim() == 4 else y[0]


def _dist(x: Tensor, w: Tensor, p: float | Tensor, geometry: Geometry) -> Tensor:
    check_power(p)
    if not torch.compiler.is_compiling():
        p = float(p)
    # Not `p == math.inf`: a compiled function would take that for impossible once p varies, and drop the branch.
    if not isinstance(p, Tensor) and p > sys.float_info.max:
        if wants_gradient(x, w):
            return InfDist.apply(x, w, geometry)[0]
        return kernels.inf_dist(x, w, *geometry)
    # A product, because `torch.compile` keeps a float that varies as a tensor through arithmetic only.
    power = p.double() if isinstance(p, Tensor) else torch.ones((), dtype=torch.float64, device="cpu") * p
    if wants_gradient(x, w):
        return PDist.apply(x, w, power, geometry)
    return kernels.p_dist(x, w, power, *geometry)


def _plain_dist(x: Tensor, w: Tensor, p: float | Tensor, geometry: Geometry) -> Tensor:
    check_power(p)
    if torch.is_grad_enabled() and (x.requires_grad or w.requires_grad):
        return PlainDist.apply(x, w, float(p), geometry)
    images, filters, power = _as_images(x), _as_images(w), float(p)
    if power == math.inf:
        y: Tensor = kernels.inf_dist(images, filters, *geometry)
    else:
        y = kernels.p_dist(images, filters, power, *geometry)
    return y if x.dim() == 4 else y.view(y.shape[:2])


def _as_images(x: Tensor) -> Tensor:
    """(B, I) -> (B, I, 1, 1); images stay."""
    return x if x.dim() == 4 else x.view(*x.shape, 1, 1) if x.is_contiguous() else x[:, :, None, None]


def _like(x: Tensor, y: Tensor) -> Tensor:
    """The outputs y (B, O, OH, OW) with as many dimensions as x. No view: autograd would not let views be changed."""
    return y if x.dim() == 4 else torch.ops.aten._unsafe_view.default(y, y.shape[:2])


class PlainDist(Function):
    """Any p, where autograd alone is at work (`kernels.is_plain`): x and w may be images, or (B, I) and (O, I).

    The functions below do the same for `torch.func` and compilers, and take ten times as long around a small kernel.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, p: float, geometry: Geometry) -> Tensor:
        images, filters = _as_images(x), _as_images(w)
        ctx.p, ctx.geometry, ctx.shapes = p, geometry, (images.shape, filters.shape)
        if p == math.inf:
            values, where = kernels.inf_dist_argmax(images, filters, *geometry)
            y = _like(x, values)
            ctx.save_for_backward(y, where)
        else:
            y = _like(x, kernels.p_dist(images, filters, p, *geometry))
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
            dx, dw = inf_gradient(_as_images(grad), _as_images(y), where, *shapes, ctx.geometry, need_x, need_w)
        else:
            x, w, y = ctx.saved_tensors
            p = torch.scalar_tensor(ctx.p, dtype=torch.float64) if again else ctx.p
            p_gradient = PDistGradient.apply if again else PDistGradient.forward
            tensors = _as_images(grad), _as_images(x), _as_images(w), _as_images(y)
            dx, dw = p_gradient(*tensors, p, ctx.geometry, need_x, need_w)
        if grad.dim() == 2:
            dx, dw = dx.flatten(1) if need_x else dx, dw.flatten(1) if need_w else dw
        return dx if need_x else None, dw if need_w else None, None, None


class InfDist(Function):
    """p = inf: values and first arg-max."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, w: Tensor, geometry: Geometry) -> tuple[Tensor, Tensor]:
        return kernels.inf_dist_argmax(x, w, *geometry)

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
        return kernels.p_dist(x, w, p, *geometry)

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
        return kernels.inf_dist_backward(grad, y, where, x_shape, w_shape, *geometry, need_x, need_w)


class PDistGradient(_Gradient):
    """(dx, dw) at any p."""

    @staticmethod
    def forward(
        grad: Tensor, x: Tensor, w: Tensor, y: Tensor, p: Tensor, geometry: Geometry, need_x: bool, need_w: bool
    ) -> tuple[Tensor, Tensor]:
        return kernels.p_dist_backward(grad, x, w, y, p, *geometry, need_x, need_w)


# The bare operators, as an exported program calls them, have the same gradients.
kernels.register_gradient("inf_dist_argmax", InfDist)
kernels.register_gradient("p_dist", PDist)
torch.library.register_autograd("linfdist::inf_dist_backward", _Gradient.backward)
torch.library.register_autograd("linfdist::p_dist_backward", _Gradient.backward)
