"""The operators under `vmap`: mapped images join the batch, mapped kernels become groups of one larger convolution."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from . import kernels
from .geometry import Geometry


def _mapped_first(tensor: Tensor, dim: int | None, size: int) -> Tensor:
    return tensor.expand(size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)


def _into_channels(tensor: Tensor, dim: int | None, size: int) -> Tensor:
    """The mapped (N, C, H, W) as (N, size * C, H, W)."""
    return _mapped_first(tensor, dim, size).transpose(0, 1).flatten(1, 2)


def _into_kernels(w: Tensor, dim: int | None, size: int) -> Tensor:
    """The mapped (O, C/groups, KH, KW) as (size * O, C/groups, KH, KW)."""
    return _mapped_first(w, dim, size).flatten(0, 1)


def _in_groups(geometry: Geometry, size: int) -> Geometry:
    return geometry._replace(groups=geometry.groups * size)


def _refuse_mapped_power(dim: int | None) -> None:
    if dim is not None:
        raise NotImplementedError("vmap over p is not supported: map over x and w, and share p")


def _forward_rule(operator: Callable[..., Any], images: int) -> Callable[..., Any]:
    """The rule for an operator that takes `images` image tensors, w, perhaps p, and the geometry."""

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
        outputs = operator(*xs, w, *power, *geometry)
        if isinstance(outputs, Tensor):
            return outputs.unflatten(mapped, (size, inner)), mapped
        return tuple(y.unflatten(mapped, (size, inner)) for y in outputs), (mapped,) * len(outputs)

    return rule


def _split_gradients(dx: Tensor, dw: Tensor, size: int, need_x: bool, need_w: bool) -> Any:
    gradients = (
        dx.unflatten(1, (size, dx.shape[1] // size)) if need_x else dx,
        dw.unflatten(0, (size, dw.shape[0] // size)) if need_w else dw,
    )
    return gradients, (1 if need_x else None, 0 if need_w else None)


def _inf_backward_rule(
    info: Any, in_dims: Sequence[int | None], grad: Tensor, y: Tensor, where: Tensor, x_shape: Sequence[int],
    w_shape: Sequence[int], geometry: Geometry, need_x: bool, need_w: bool,
) -> Any:  # fmt: skip
    size = info.batch_size
    outputs = [_into_channels(t, dim, size) for t, dim in zip((grad, y, where), in_dims[:3], strict=True)]
    (n, channels, *image), (neurons, *kernel) = x_shape, w_shape
    dx, dw = kernels.inf_dist_backward(
        *outputs, [n, size * channels, *image], [size * neurons, *kernel], *_in_groups(geometry, size), need_x, need_w
    )
    return _split_gradients(dx, dw, size, need_x, need_w)


def _p_backward_rule(
    info: Any, in_dims: Sequence[int | None], grad: Tensor, x: Tensor, w: Tensor, y: Tensor, p: Tensor,
    geometry: Geometry, need_x: bool, need_w: bool,
) -> Any:  # fmt: skip
    size = info.batch_size
    grad_dim, x_dim, w_dim, y_dim, p_dim = in_dims[:5]
    _refuse_mapped_power(p_dim)
    dx, dw = kernels.p_dist_backward(
        _into_channels(grad, grad_dim, size), _into_channels(x, x_dim, size), _into_kernels(w, w_dim, size),
        _into_channels(y, y_dim, size), p, *_in_groups(geometry, size), need_x, need_w,
    )  # fmt: skip
    return _split_gradients(dx, dw, size, need_x, need_w)


def _register(name: str, rule: Callable[..., Any], after: int = 0) -> None:
    torch.library.register_vmap(f"linfdist::{name}", kernels.with_geometry(rule, after))


_register("inf_dist", _forward_rule(kernels.inf_dist, images=1))
_register("inf_dist_argmax", _forward_rule(kernels.inf_dist_argmax, images=1))
_register("p_dist", _forward_rule(kernels.p_dist, images=1))
_register("box_dist", _forward_rule(kernels.box_dist, images=2))
_register("box_dist_argmax", _forward_rule(kernels.box_dist_argmax, images=2))
_register("inf_dist_backward", _inf_backward_rule, after=2)
_register("p_dist_backward", _p_backward_rule, after=2)
