"""The operators `torch.ops.linfdist.*`: what `torch.compile`, `torch.export` and `vmap` see.

Each is defined once for every device, runs on the picked backend, and comes with a fake kernel (shapes only) and a
batching rule for `vmap`. `autograd` adds the gradients.

p is a 0-dim tensor here, not a float, so that a compiled training step reads it at run time instead of being compiled
again whenever it changes; for the same reason the p-operators take p = inf as well.

Without tracing or transforms (`is_plain`), the functions below are called without the operator around them, and p may
be a float: dispatching an operator that is written in Python takes ten times as long as a small kernel.

A geometry is one argument in Python, and four of an operator, whose schema knows numbers and lists alone.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from .backends import Backend, is_plain, native_for, pick_backend
from .geometry import Geometry, Ints, output_size

GEOMETRY = "int[] stride, int[] padding, int[] dilation, int groups"
_PLACES: dict[str, int] = {}  # by operator: how many arguments come before the geometry


def with_geometry(function: Callable[..., Any], place: int) -> Callable[..., Any]:
    """Wrap a function whose argument number `place` is a `Geometry`, for torch, which passes its four parts instead."""

    def call(*args: Any) -> Any:
        return function(*args[:place], Geometry(*args[place : place + 4]), *args[place + 4 :])

    return call


def operator(arguments: str, returns: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function, which takes its geometry as one argument, as the operator of its name.

    Returns a function with the same arguments that calls the operator, or the function itself where that makes no
    difference.
    """

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        name = function.__name__
        place = _PLACES[name] = arguments.split(GEOMETRY)[0].count(",")
        torch.library.define(f"linfdist::{name}", f"({arguments}) -> {returns}", tags=(torch.Tag.pt2_compliant_tag,))
        torch.library.impl(f"linfdist::{name}", "default")(with_geometry(function, place))
        dispatched = getattr(torch.ops.linfdist, name).default

        def call(*args: Any) -> Any:
            differentiable = torch.is_grad_enabled() and any(isinstance(a, Tensor) and a.requires_grad for a in args)
            if differentiable or not is_plain(args[0], args[1]):
                return dispatched(*args[:place], *args[place], *args[place + 1 :])
            return function(*args)

        return call

    return register


def fake(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function, which takes its geometry as one argument, as the fake kernel of an operator."""
    return lambda function: torch.library.register_fake(f"linfdist::{name}")(with_geometry(function, _PLACES[name]))


def register_gradient(name: str, function: type[Function]) -> None:
    """Give the operator of a forward the gradient of a `Function` whose last input is the geometry."""

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        function.setup_context(ctx, (*inputs[:-4], Geometry(*inputs[-4:])), output)

    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return *function.backward(ctx, *grads), None, None, None  # one None for each part of the geometry

    torch.library.register_autograd(f"linfdist::{name}", backward, setup_context=setup_context)


# --- implementations ------------------------------------------------------------------------------


@operator(f"Tensor x, Tensor w, {GEOMETRY}", "Tensor")
def inf_dist(x: Tensor, w: Tensor, geometry: Geometry) -> Tensor:
    return pick_backend(x, w).inf_dist(x.contiguous(), w.contiguous(), geometry)


@operator(f"Tensor x, Tensor w, {GEOMETRY}", "(Tensor, Tensor)")
def inf_dist_argmax(x: Tensor, w: Tensor, geometry: Geometry) -> tuple[Tensor, Tensor]:
    return pick_backend(x, w).inf_dist_argmax(x.contiguous(), w.contiguous(), geometry)


@operator(
    f"Tensor grad, Tensor y, Tensor where, SymInt[] x_shape, SymInt[] w_shape, {GEOMETRY}, bool need_x, bool need_w",
    "(Tensor, Tensor)",
)
def inf_dist_backward(
    grad: Tensor, y: Tensor, where: Tensor, x_shape: Ints, w_shape: Ints, *rest: Any
) -> tuple[Tensor, Tensor]:
    backend = pick_backend(grad, y)
    return backend.inf_dist_backward(grad.contiguous(), y.contiguous(), where.contiguous(), x_shape, w_shape, *rest)


@operator(f"Tensor x, Tensor w, Tensor p, {GEOMETRY}", "Tensor")
def p_dist(x: Tensor, w: Tensor, p: Tensor, geometry: Geometry) -> Tensor:
    backend, x, w, power = pick_backend(x, w), x.contiguous(), w.contiguous(), _power_of(p)
    return backend.inf_dist(x, w, geometry) if power == math.inf else backend.p_dist(x, w, power, geometry)


@operator(
    f"Tensor grad, Tensor x, Tensor w, Tensor y, Tensor p, {GEOMETRY}, bool need_x, bool need_w", "(Tensor, Tensor)"
)
def p_dist_backward(
    grad: Tensor, x: Tensor, w: Tensor, y: Tensor, p: Tensor, geometry: Geometry, need_x: bool, need_w: bool
) -> tuple[Tensor, Tensor]:
    backend, power = pick_backend(x, w), _power_of(p)
    grad, x, w, y = (tensor.contiguous() for tensor in (grad, x, w, y))
    if power < math.inf:
        return backend.p_dist_backward(grad, x, w, y, power, geometry, need_x, need_w)
    _, where = backend.inf_dist_argmax(x, w, geometry)
    return backend.inf_dist_backward(grad, y, where, x.shape, w.shape, geometry, need_x, need_w)


@operator(f"Tensor lower, Tensor upper, Tensor w, {GEOMETRY}", "(Tensor, Tensor)")
def box_dist(lower: Tensor, upper: Tensor, w: Tensor, geometry: Geometry) -> tuple[Tensor, Tensor]:
    return pick_backend(lower, w).box_dist(lower.contiguous(), upper.contiguous(), w.contiguous(), geometry)


@operator(f"Tensor lower, Tensor upper, Tensor w, {GEOMETRY}", "(Tensor, Tensor, Tensor, Tensor)")
def box_dist_argmax(
    lower: Tensor, upper: Tensor, w: Tensor, geometry: Geometry
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return pick_backend(lower, w).box_dist_argmax(lower.contiguous(), upper.contiguous(), w.contiguous(), geometry)


@operator(
    "Tensor grad_near, Tensor grad_far, Tensor nearest, Tensor farthest, Tensor near_where, Tensor far_where, "
    f"SymInt[] x_shape, SymInt[] w_shape, {GEOMETRY}, bool need_lower, bool need_upper, bool need_w",
    "(Tensor, Tensor, Tensor)",
)
def box_dist_backward(
    grad_near: Tensor, grad_far: Tensor, nearest: Tensor, farthest: Tensor, near_where: Tensor, far_where: Tensor,
    *rest: Any,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """(d_lower, d_upper, dw); an unneeded one is empty."""
    tensors: list[Any] = [t.contiguous() for t in (grad_near, grad_far, nearest, farthest, near_where, far_where)]
    native = native_for(nearest, "box_dist_backward")
    if native:
        return native.box_dist_backward(*tensors, *rest)
    return box_dist_backward_by_parts(pick_backend(grad_near, nearest), *tensors, *rest)


def box_dist_backward_by_parts(
    backend: Backend, grad_near: Tensor, grad_far: Tensor, nearest: Tensor, farthest: Tensor, near_where: Tensor,
    far_where: Tensor, x_shape: Ints, w_shape: Ints, geometry: Geometry, need_lower: bool, need_upper: bool,
    need_w: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """`box_dist_backward` of a backend that has no kernel for it."""

    def through(bound: Tensor, grad: Tensor, where: Tensor, keep: Tensor, need_x: bool) -> tuple[Tensor, Tensor]:
        """Return the gradient of one result, set to 0 except where `keep` says that it passes through this bound."""
        return backend.inf_dist_backward(
            grad.where(keep, 0.0), bound, where, x_shape, w_shape, geometry, need_x, need_w
        )

    # `x - w` attains the smaller result at the lower bound and the larger one at the upper; `w - x` the reverse.
    near_lower, w1 = through(nearest, grad_near, near_where, near_where >= 0, need_lower)
    near_upper, w2 = through(nearest, grad_near, near_where, near_where < 0, need_upper)
    far_upper, w3 = through(farthest, grad_far, far_where, far_where >= 0, need_upper)
    far_lower, w4 = through(farthest, grad_far, far_where, far_where < 0, need_lower)
    return near_lower + far_lower, near_upper + far_upper, (w1 + w2) + (w3 + w4)


def _power_of(p: Tensor | float) -> float:
    value = float(p)
    if not value >= 1:
        raise ValueError(f"p must be a real number in [1, inf], got {value}")
    return value


# --- fake kernels ---------------------------------------------------------------------------------


def _new_output(x: Tensor, w: Tensor, geometry: Geometry, dtype: torch.dtype | None = None) -> Tensor:
    return x.new_empty(x.shape[0], w.shape[0], *output_size(x.shape, w.shape, geometry), dtype=dtype)


@fake("inf_dist")
def _(x: Tensor, w: Tensor, geometry: Geometry) -> Tensor:
    return _new_output(x, w, geometry)


@fake("inf_dist_argmax")
def _(x: Tensor, w: Tensor, geometry: Geometry) -> tuple[Tensor, Tensor]:
    return _new_output(x, w, geometry), _new_output(x, w, geometry, torch.int32)


@fake("inf_dist_backward")
def _(
    grad: Tensor, y: Tensor, where: Tensor, x_shape: Ints, w_shape: Ints, _: Geometry, need_x: bool, need_w: bool
) -> tuple[Tensor, Tensor]:
    return grad.new_empty(x_shape if need_x else 0), grad.new_empty(w_shape if need_w else 0)


@fake("box_dist_backward")
def _(grad_near: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    *_, x_shape, w_shape, _, need_lower, need_upper, need_w = rest
    needed = (x_shape if need_lower else 0, x_shape if need_upper else 0, w_shape if need_w else 0)
    return tuple(grad_near.new_empty(shape) for shape in needed)


@fake("p_dist")
def _(x: Tensor, w: Tensor, p: Tensor, geometry: Geometry) -> Tensor:
    return _new_output(x, w, geometry)


@fake("p_dist_backward")
def _(
    grad: Tensor, x: Tensor, w: Tensor, y: Tensor, p: Tensor, _: Geometry, need_x: bool, need_w: bool
) -> tuple[Tensor, Tensor]:
    return grad.new_empty(x.shape if need_x else 0), grad.new_empty(w.shape if need_w else 0)


@fake("box_dist")
def _(lower: Tensor, upper: Tensor, w: Tensor, geometry: Geometry) -> tuple[Tensor, Tensor]:
    return _new_output(lower, w, geometry), _new_output(lower, w, geometry)


@fake("box_dist_argmax")
def _(lower: Tensor, upper: Tensor, w: Tensor, geometry: Geometry) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    values = (_new_output(lower, w, geometry), _new_output(lower, w, geometry))
    return *values, _new_output(lower, w, geometry, torch.int32), _new_output(lower, w, geometry, torch.int32)


# --- a gradient wanted of a values-only operator, as in an exported program -----------------------


@torch.library.impl("linfdist::inf_dist", "Autograd")
def _(x: Tensor, w: Tensor, *geometry: Any) -> Tensor:
    if torch.is_grad_enabled() and (x.requires_grad or w.requires_grad):
        return inf_dist_argmax(x, w, Geometry(*geometry))[0]
    with torch._C._AutoDispatchBelowAutograd():
        return inf_dist(x, w, Geometry(*geometry))


@torch.library.impl("linfdist::box_dist", "Autograd")
def _(lower: Tensor, upper: Tensor, w: Tensor, *geometry: Any) -> tuple[Tensor, Tensor]:
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (lower, upper, w)):
        return box_dist_argmax(lower, upper, w, Geometry(*geometry))[:2]
    with torch._C._AutoDispatchBelowAutograd():
        return box_dist(lower, upper, w, Geometry(*geometry))


# --- vmap: mapped images join the batch, mapped kernels become groups of one larger convolution -----


def _mapped_first(tensor: Tensor, dim: int | None, size: int) -> Tensor:
    return tensor.expand(size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)


def _into_channels(tensor: Tensor, dim: int | None, size: int) -> Tensor:
    """Reshape the mapped (N, C, H, W) to (N, size * C, H, W)."""
    return _mapped_first(tensor, dim, size).transpose(0, 1).flatten(1, 2)


def _into_kernels(w: Tensor, dim: int | None, size: int) -> Tensor:
    """Reshape the mapped (O, C/groups, KH, KW) to (size * O, C/groups, KH, KW)."""
    return _mapped_first(w, dim, size).flatten(0, 1)


def _in_groups(geometry: Geometry, size: int) -> Geometry:
    return geometry._replace(groups=geometry.groups * size)


def _refuse_mapped_power(dim: int | None) -> None:
    if dim is not None:
        raise NotImplementedError("vmap over p is not supported: map over x and w, and share p")


def _forward_rule(operator: Callable[..., Any], images: int) -> Callable[..., Any]:
    """Make the rule for an operator that takes `images` image tensors, w, perhaps p, and the geometry."""

    def rule(info: Any, in_dims: Sequence[int | None], *args: Any) -> Any:
        *tensors, geometry = args
        xs, w, power = tensors[:images], tensors[images], tensors[images + 1 :]
        x_dims, w_dim = in_dims[:images], in_dims[images]
        for dim in in_dims[images + 1 : len(tensors)]:
            _refuse_mapped_power(dim)
        size = info.batch_size
        if w_dim is None:
            xs = [_mapped_first(x, dim, size).flatten(0, 1) for x, dim in zip(xs, x_dims, strict=True)]
            mapped, inner = 0, xs[0].shape[0] // size
        else:
            xs = [_into_channels(x, dim, size) for x, dim in zip(xs, x_dims, strict=True)]
            w, geometry = _into_kernels(w, w_dim, size), _in_groups(geometry, size)
            mapped, inner = 1, w.shape[0] // size
        outputs = operator(*xs, w, *power, geometry)
        if isinstance(outputs, Tensor):
            return outputs.unflatten(mapped, (size, inner)), mapped
        return tuple(y.unflatten(mapped, (size, inner)) for y in outputs), (mapped,) * len(outputs)

    return rule


def _split_gradients(gradients: Sequence[Tensor], size: int, need: Sequence[bool]) -> Any:
    """Split the gradients of images by their channels, and the last one, that of w, by its neurons."""
    dims = [1] * (len(gradients) - 1) + [0]
    split = [
        gradient.unflatten(dim, (size, gradient.shape[dim] // size)) if needed else gradient
        for gradient, dim, needed in zip(gradients, dims, need, strict=True)
    ]
    return tuple(split), tuple(dim if needed else None for dim, needed in zip(dims, need, strict=True))


def _inf_backward_rule(operator: Callable[..., Any], outputs: int) -> Callable[..., Any]:
    """Make the rule for a backward of p = inf, which takes `outputs` tensors of the shape of an output."""

    def rule(info: Any, in_dims: Sequence[int | None], *args: Any) -> Any:
        size = info.batch_size
        tensors = [_into_channels(t, dim, size) for t, dim in zip(args[:outputs], in_dims[:outputs], strict=True)]
        (n, channels, *image), (neurons, *kernel), geometry, *need = args[outputs:]
        shapes = [n, size * channels, *image], [size * neurons, *kernel]
        return _split_gradients(operator(*tensors, *shapes, _in_groups(geometry, size), *need), size, need)

    return rule


def _p_backward_rule(
    info: Any, in_dims: Sequence[int | None], grad: Tensor, x: Tensor, w: Tensor, y: Tensor, p: Tensor,
    geometry: Geometry, need_x: bool, need_w: bool,
) -> Any:  # fmt: skip
    size = info.batch_size
    grad_dim, x_dim, w_dim, y_dim, p_dim = in_dims[:5]
    _refuse_mapped_power(p_dim)
    dx, dw = p_dist_backward(
        _into_channels(grad, grad_dim, size), _into_channels(x, x_dim, size), _into_kernels(w, w_dim, size),
        _into_channels(y, y_dim, size), p, _in_groups(geometry, size), need_x, need_w,
    )  # fmt: skip
    return _split_gradients((dx, dw), size, (need_x, need_w))


def _register(name: str, rule: Callable[..., Any]) -> None:
    """Register a batching rule, whose first arguments are torch's description of the mapping."""
    torch.library.register_vmap(f"linfdist::{name}", with_geometry(rule, 2 + _PLACES[name]))


_register("inf_dist", _forward_rule(inf_dist, images=1))
_register("inf_dist_argmax", _forward_rule(inf_dist_argmax, images=1))
_register("p_dist", _forward_rule(p_dist, images=1))
_register("box_dist", _forward_rule(box_dist, images=2))
_register("box_dist_argmax", _forward_rule(box_dist_argmax, images=2))
_register("inf_dist_backward", _inf_backward_rule(inf_dist_backward, outputs=3))
_register("box_dist_backward", _inf_backward_rule(box_dist_backward, outputs=6))
_register("p_dist_backward", _p_backward_rule)
