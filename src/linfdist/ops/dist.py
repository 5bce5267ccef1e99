"""The distance of inputs to weights and of boxes to weights: linear and convolutional, differentiable.

Points take any p in [1, inf]; boxes have interval bounds at p = inf, which are tight per neuron.
"""

import math
import sys
from numbers import Real
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from . import operators
from .autograd import BoxDist, InfDist, PDist, PlainBoxDist, PlainDist
from .backends import as_images, is_plain, pick_backend
from .geometry import POINT, Geometry, IntOrPair, check_fit, make_geometry


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
    x, w = _same_precision(x=x, w=w)
    if x.dim() < 1 or w.dim() != 2 or x.shape[-1] != w.shape[1]:
        raise ValueError(f"need x (..., I) and w (O, I), got {tuple(x.shape)} and {tuple(w.shape)}")
    if x.dim() == 2 and is_plain(x, w):
        return _plain_dist(x, w, p, POINT)
    return _dist(_rows_of(x), w[:, :, None, None], p, POINT).reshape(*x.shape[:-1], w.shape[0])


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
    x, w = _same_precision(x=x, w=w)
    if x.dim() not in (3, 4):
        raise ValueError(f"x must have shape (N, C, H, W) or (C, H, W), got {tuple(x.shape)}")
    geometry = make_geometry(stride, padding, dilation, groups)
    images = x if x.dim() == 4 else x[None]
    check_fit(images, w, geometry)
    y = (_plain_dist if is_plain(images, w) else _dist)(images, w, p, geometry)
    return y if x.dim() == 4 else y[0]


def dist_box(lower: Tensor, upper: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    """Return the smallest and the largest `dist(x, w)` over all lower <= x <= upper.

    This is Appendix B for the neuron of eq. (2):

    lower[..., o] = max_i max(lower[..., i] - w[o, i], w[o, i] - upper[..., i], 0)
    upper[..., o] = max_i max(upper[..., i] - w[o, i], w[o, i] - lower[..., i])

    lower and upper (..., I), w (O, I) -> two tensors (..., O). Both bounds are attained, each neuron for itself.

    Gradient: +-1 to the bound and the weight that attain the first maximum (`x - w` before `w - x` if equal), 0 where
    the result is 0; no second derivative.

    Numbers: same bits from every backend, and for lower <= x <= upper the computed `dist(x, w)` lies between the
    computed bounds, without slack. NaN in a bound is not an error: it propagates. `lower > upper` anywhere raises
    ValueError in eager mode; it is not looked for under `torch.compile`, `torch.export` and `torch.func`.
    """
    lower, upper, w = _same_precision(lower=lower, upper=upper, w=w)
    if lower.dim() < 1 or w.dim() != 2 or lower.shape[-1] != w.shape[1] or lower.shape != upper.shape:
        raise ValueError(
            f"need lower (..., I), upper (..., I) and w (O, I), "
            f"got {tuple(lower.shape)}, {tuple(upper.shape)} and {tuple(w.shape)}"
        )
    _check_order(lower, upper)
    if lower.dim() == 2 and is_plain(lower, upper, w):
        return _plain_dist_box(lower, upper, w, POINT)
    bounds = _dist_box(_rows_of(lower), _rows_of(upper), w[:, :, None, None], POINT)
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
    """Return the smallest and the largest `dist_conv2d(x, w)` over all lower <= x <= upper (Appendices B and F).

    lower and upper (N, C, H, W) or (C, H, W), w (O, C/groups, KH, KW) -> two tensors (N, O, OH, OW) or (O, OH, OW).
    Padding is the box [0, 0]. Gradients, numerical promises and the check of lower <= upper are those of `dist_box`.
    """
    lower, upper, w = _same_precision(lower=lower, upper=upper, w=w)
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
    bounds = _plain_dist_box if is_plain(low, high, w) else _dist_box
    nearest, farthest = bounds(low, high, w, geometry)
    return (nearest[0], farthest[0]) if single else (nearest, farthest)


def _dist(x: Tensor, w: Tensor, p: float | Tensor, geometry: Geometry) -> Tensor:
    _check_power(p)
    if not torch.compiler.is_compiling():
        p = float(p)
    # Not `p == math.inf`: a compiled function would take that for impossible once p varies, and drop the branch.
    if not isinstance(p, Tensor) and p > sys.float_info.max:
        if _wants_gradient(x, w):
            return InfDist.apply(x, w, geometry)[0]
        return operators.inf_dist(x, w, geometry)
    # A product, because `torch.compile` keeps a float that varies as a tensor through arithmetic only.
    power = p.double() if isinstance(p, Tensor) else torch.ones((), dtype=torch.float64, device="cpu") * p
    if _wants_gradient(x, w):
        return PDist.apply(x, w, power, geometry)
    return operators.p_dist(x, w, power, geometry)


def _plain_dist(x: Tensor, w: Tensor, p: float | Tensor, geometry: Geometry) -> Tensor:
    _check_power(p)
    if torch.is_grad_enabled() and (x.requires_grad or w.requires_grad):
        return PlainDist.apply(x, w, float(p), geometry)
    images, filters, power = as_images(x), as_images(w), float(p)
    if power == math.inf:
        y = pick_backend(images, filters).inf_dist(images.contiguous(), filters.contiguous(), geometry)
    else:
        y = operators.p_dist(images, filters, power, geometry)
    return y if x.dim() == 4 else y.view(y.shape[:2])


def _dist_box(lower: Tensor, upper: Tensor, w: Tensor, geometry: Geometry) -> tuple[Tensor, Tensor]:
    if _wants_gradient(lower, upper, w):
        nearest, farthest, _, _ = BoxDist.apply(lower, upper, w, geometry)
        return nearest, farthest
    return operators.box_dist(lower, upper, w, geometry)


def _plain_dist_box(lower: Tensor, upper: Tensor, w: Tensor, geometry: Geometry) -> tuple[Tensor, Tensor]:
    if torch.is_grad_enabled() and (lower.requires_grad or upper.requires_grad or w.requires_grad):
        return PlainBoxDist.apply(lower, upper, w, geometry)
    low, high, filters = (as_images(tensor).contiguous() for tensor in (lower, upper, w))
    near, far = pick_backend(low, filters).box_dist(low, high, filters, geometry)
    return (near, far) if lower.dim() == 4 else (near.view(near.shape[:2]), far.view(far.shape[:2]))


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


# --- what is accepted -----------------------------------------------------------------------------


def _same_precision(**tensors: Tensor) -> tuple[Tensor, ...]:
    """Return the named tensors, all float32 or all float64, on one device; inside autocast, halves become float32."""
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{name} must be a tensor, got {type(tensor).__name__}")
    first = next(iter(tensors.values()))
    if first.dtype in (torch.float32, torch.float64) and all(
        tensor.dtype == first.dtype and tensor.device == first.device for tensor in tensors.values()
    ):
        return tuple(tensors.values())
    if _in_autocast(first.device.type):
        tensors = {
            name: tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor
            for name, tensor in tensors.items()
        }
    for name, tensor in tensors.items():
        if tensor.dtype not in (torch.float32, torch.float64):
            raise TypeError(
                f"{name} must be float32 or float64, got {tensor.dtype}: convert it, e.g. {name}.float(); "
                "float16 and bfloat16 are converted inside torch.autocast only"
            )
    if len({tensor.dtype for tensor in tensors.values()}) > 1:
        raise TypeError(f"need one dtype, got {_listing({n: t.dtype for n, t in tensors.items()})}")
    if len({tensor.device for tensor in tensors.values()}) > 1:
        raise ValueError(f"need one device, got {_listing({n: t.device for n, t in tensors.items()})}")
    return tuple(tensors.values())


def _check_power(p: float | Tensor) -> None:
    """Raise unless p is a real number in [1, inf]; the value of a tensor is checked when it is used."""
    if isinstance(p, Tensor):
        if p.dim() != 0 or not p.is_floating_point() or p.requires_grad:
            raise ValueError(
                "as a tensor, p must be floating-point, have no dimensions and need no gradient, got "
                f"{p.dtype} of shape {tuple(p.shape)}, requires_grad={p.requires_grad}"
            )
    elif isinstance(p, bool) or not isinstance(p, Real):
        raise TypeError(f"p must be a real number in [1, inf], got {p!r}")
    elif not p >= 1:
        raise ValueError(f"p must be a real number in [1, inf], got {p}")


def _wants_gradient(*tensors: Tensor) -> bool:
    """Return whether the result may be differentiated; `torch.func` hides that, so there it is always True."""
    return (
        (torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors))
        or torch._C._are_functorch_transforms_active()
        or forward_ad._current_level >= 0
    )


def _rows_of(x: Tensor) -> Tensor:
    """(..., I) -> (B, I, 1, 1)."""
    rows = x[None] if x.dim() == 1 else x.flatten(0, -2)
    return rows[:, :, None, None]


def _in_autocast(device_type: str) -> bool:
    return torch.amp.is_autocast_available(device_type) and torch.is_autocast_enabled(device_type)


def _listing(what: dict[str, Any]) -> str:
    return ", ".join(f"{name}: {value}" for name, value in what.items())
