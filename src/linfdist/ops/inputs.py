"""What the public functions accept: precision, devices, shapes, p."""

from numbers import Real
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad


def same_precision(**tensors: Tensor) -> tuple[Tensor, ...]:
    """The named tensors, all float32 or all float64, on one device; inside autocast, halves become float32."""
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


def check_power(p: float | Tensor) -> None:
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


def wants_gradient(*tensors: Tensor) -> bool:
    """Whether somebody may differentiate; `torch.func` hides the answer, so there it is always yes."""
    return (
        (torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors))
        or torch._C._are_functorch_transforms_active()
        or forward_ad._current_level >= 0
    )


def rows_of(x: Tensor) -> Tensor:
    """(..., I) -> (B, I, 1, 1)."""
    rows = x[None] if x.dim() == 1 else x.flatten(0, -2)
    return rows[:, :, None, None]


def _in_autocast(device_type: str) -> bool:
    return torch.amp.is_autocast_available(device_type) and torch.is_autocast_enabled(device_type)


def _listing(what: dict[str, Any]) -> str:
    return ", ".join(f"{name}: {value}" for name, value in what.items())
