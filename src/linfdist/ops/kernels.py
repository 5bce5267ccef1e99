"""The operators `torch.ops.linfdist.*`: what `torch.compile`, `torch.export` and `vmap` see.

Each is defined once for every device, runs on the picked backend, and comes with a fake kernel (shapes only) and a
batching rule (`batching`). Gradients are the business of `dist` and `box`.

p is a 0-dim tensor here, not a float, so that a compiled training step reads it at run time instead of being compiled
again whenever it changes; for the same reason the p-operators take p = inf as well.

Where nothing looks on (`is_plain`), the functions below are called without the operator around them, and p may be a
float: dispatching an operator that is written in Python takes ten times as long as a small kernel.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function, forward_ad

from .backends import Ints
from .geometry import Geometry, output_size
from .select import pick_backend

GEOMETRY = "int[] stride, int[] padding, int[] dilation, int groups"  # operators know numbers and lists alone


def is_plain(*tensors: Tensor) -> bool:
    """Whether these are tensors on the CPU and nobody traces, transforms or intercepts what is done with them."""
    return (
        not torch.compiler.is_compiling()
        and not torch._C._are_functorch_transforms_active()
        and not torch._C._len_torch_dispatch_stack()
        and torch._C._get_tracing_state() is None
        and forward_ad._current_level < 0
        and all(type(tensor) in (Tensor, nn.Parameter) and tensor.is_cpu for tensor in tensors)
    )


def with_geometry(function: Callable[..., Any], after: int = 0) -> Callable[..., Any]:
    """The function, called with a geometry's four parts where it takes a `Geometry`, `after` arguments from the end."""

    def call(*args: Any) -> Any:
        end = len(args) - after
        return function(*args[: end - 4], Geometry(*args[end - 4 : end]), *args[end:])

    return call


def operator(arguments: str, returns: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function, which takes its geometry as one argument, as the operator of its name.

    Returns what calls the operator, or the function itself where that makes no difference.
    """

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        name = f"linfdist::{function.__name__}"
        torch.library.define(name, f"({arguments}) -> {returns}", tags=(torch.Tag.pt2_compliant_tag,))
        after = arguments.split(GEOMETRY)[1].count(",")
        direct = with_geometry(function, after)
        torch.library.impl(name, "default")(direct)
        dispatched = getattr(torch.ops.linfdist, function.__name__).default

        def call(*args: Any) -> Any:
            first, second = args[:2]
            differentiable = torch.is_grad_enabled() and any(isinstance(a, Tensor) and a.requires_grad for a in args)
            return (dispatched if differentiable or not is_plain(first, second) else direct)(*args)

        return call

    return register


def fake(name: str, after: int = 0) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function, which takes its geometry as one argument, as the fake kernel of an operator."""
    return lambda function: torch.library.register_fake(f"linfdist::{name}")(with_geometry(function, after))


def register_gradient(name: str, function: type[Function]) -> None:
    """Let the operator of a forward have the gradient of a `Function` whose last input is its geometry."""

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


@fake("inf_dist_backward", after=2)
def _(
    grad: Tensor, y: Tensor, where: Tensor, x_shape: Ints, w_shape: Ints, _: Geometry, need_x: bool, need_w: bool
) -> tuple[Tensor, Tensor]:
    return grad.new_empty(x_shape if need_x else 0), grad.new_empty(w_shape if need_w else 0)


@fake("p_dist")
def _(x: Tensor, w: Tensor, p: Tensor, geometry: Geometry) -> Tensor:
    return _new_output(x, w, geometry)


@fake("p_dist_backward", after=2)
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
        return inf_dist_argmax(x, w, *geometry)[0]
    with torch._C._AutoDispatchBelowAutograd():
        return inf_dist(x, w, *geometry)


@torch.library.impl("linfdist::box_dist", "Autograd")
def _(lower: Tensor, upper: Tensor, w: Tensor, *geometry: Any) -> tuple[Tensor, Tensor]:
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (lower, upper, w)):
        return box_dist_argmax(lower, upper, w, *geometry)[:2]
    with torch._C._AutoDispatchBelowAutograd():
        return box_dist(lower, upper, w, *geometry)
