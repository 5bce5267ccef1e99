"""The devices that proofs hold on: what is needed of their arithmetic, and what of that is tried there first."""

import copy
from collections.abc import Iterator
from functools import cache
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..bounds.head import DOUBLE_TANH_EPS, TANH_EPS
from ..machine import DeviceError, choose_device
from ..nn import Box, DistLinear

PROVED = ("cpu", "cuda")  # types of devices; torch calls GPUs of AMD cuda, too
Model = TypeVar("Model")
SIDE = 256  # of the matrices that are tried: large enough for the kernels that large ones get


def on_device(model: Model, device: str | torch.device | None) -> Model:
    """Return a network on a device: itself where it is there already, else a copy; None stands for where it is."""
    if device is None:
        return model
    there = choose_device(device)
    if not isinstance(model, nn.Module):
        if there.type != "cpu":
            raise DeviceError(f"device = {str(device)!r}: a {type(model).__name__} computes on the CPU")
        return model
    return model if all(tensor.device == there for tensor in tensors_of(model)) else copy_of(model, there)


def copy_of(model: Model, device: torch.device | None = None) -> Model:
    """Copy a network, to a device if one is given.

    Its tensors are cloned, as `deepcopy` copies storages, which not every device can. Tensors of other types than
    torch's own copy themselves and stay where they are, for the checks to refuse.
    """
    copied: dict[int, Any] = {}
    for tensor in tensors_of(model):
        if type(tensor) in (Tensor, nn.Parameter):
            own = tensor.detach().to(device or tensor.device, copy=True)
            parameter = isinstance(tensor, nn.Parameter)
            copied[id(tensor)] = nn.Parameter(own, tensor.requires_grad) if parameter else own
    return copy.deepcopy(model, copied)


def tensors_of(model: object) -> list[Tensor]:
    """Return the parameters and buffers of a network of modules; none of others."""
    return [*model.parameters(), *model.buffers()] if isinstance(model, nn.Module) else []


def check_device(device: torch.device) -> None:
    """Raise ValueError if proofs do not hold for what this device computes, as far as that is known or can be tried.

    The CPU is believed (docs/trust.md). A GPU must pass `wrong_arithmetic`, once in a process.
    """
    if device.type not in PROVED:
        raise ValueError(
            f"certificates need float64 and the rounding of IEEE 754, which is not known of {device.type}: certify on "
            "the CPU, with device='cpu' or --device cpu; the network may stay where it is"
        )
    if device.type != "cpu" and (wrong := _tried(device)):
        raise ValueError(
            f"certificates do not hold on {device}, whose arithmetic is not that of IEEE 754 ({'; '.join(wrong)}): "
            "certify on the CPU, with device='cpu' or --device cpu"
        )


@cache
def _tried(device: torch.device) -> tuple[str, ...]:
    return tuple(wrong_arithmetic(device))


@torch.no_grad()
def wrong_arithmetic(device: torch.device) -> list[str]:
    """Try on a device what the proofs need of it, in a few milliseconds; name what came out otherwise than it must.

    Expected values come from the CPU. What passes is no proof: it catches products in less than their precision, fast
    division, wrong kernels and broken hardware. Denormal numbers are left out: proofs hold with and without them.
    """
    wrong = []
    for dtype in (torch.float32, torch.float64):
        wrong += [f"{name} in {str(dtype)[6:]}" for name, right in _trials(dtype, device) if not right]
    return wrong


def _trials(dtype: torch.dtype, device: torch.device) -> Iterator[tuple[str, bool]]:
    """What is tried in one precision, and whether it came out as NumPy computes it on the CPU."""
    x, y = (each.to(device) for each in _numbers(dtype))
    a, b = (each.numpy() for each in _numbers(dtype))
    std = torch.full((), 0.3081, dtype=dtype, device=device)  # one number, as the normalisation has it
    one = torch.eye(SIDE, dtype=dtype, device=device)  # times which every sum is exact, in whatever order it is taken
    yield "subtraction", _equal(x - y, a - b)
    yield "addition", _equal(x + y, a + b)
    yield "division", _equal(x / y, a / b) and _equal(x / std, a / std.cpu().numpy())
    yield "nextafter", _equal(torch.nextafter(x, y), np.nextafter(a, b))
    yield "distances", _distances(dtype, device)
    yield "matrix products", _equal((x.view(SIDE, SIDE) @ one).flatten(), a)
    yield "tanh", _tanh(dtype, device)


def _equal(found: Tensor, right: NDArray[Any]) -> bool:
    return bool(np.array_equal(found.cpu().numpy(), right))


def _numbers(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Two numbers each, of all signs, sizes from 2^-20 to 2^20 and all digits; their results are no denormals."""
    generator = torch.Generator().manual_seed(0)
    count = SIDE**2

    def draw() -> Tensor:
        sign = 2.0 * torch.randint(2, (count,), generator=generator) - 1
        digits = 1 + torch.rand(count, dtype=torch.float64, generator=generator)
        size = torch.exp2(torch.randint(-20, 20, (count,), generator=generator).double())
        return (sign * digits * size).to(dtype)

    return draw(), draw()


def _distances(dtype: torch.dtype, device: torch.device) -> bool:
    """Whether a dist layer and its bounds, which a backend of this package computes there, have the right bits."""
    x, w = (each[: rows * 67].view(rows, 67) for each, rows in zip(_numbers(dtype), (7, 13), strict=True))
    top = x + x.abs()
    layer = DistLinear(67, 13).to(device, dtype)
    layer.weight.copy_(w)
    lower, upper = (each.numpy()[:, None] - w.numpy() for each in (x, top))  # (7, 13, 67)
    near = np.maximum(lower, -upper).max(2, initial=0)
    far = np.maximum(upper, -lower).max(2)
    box = layer.forward_box(Box(x.to(device), top.to(device)))
    return _equal(layer(x.to(device)), np.abs(lower).max(2)) and _equal(box.lower, near) and _equal(box.upper, far)


def _tanh(dtype: torch.dtype, device: torch.device) -> bool:
    """Whether tanh errs by no more than the bounds of heads allow."""
    x = torch.linspace(-10, 10, 4001, dtype=dtype)
    allowed = (TANH_EPS if dtype == torch.float32 else DOUBLE_TANH_EPS) * torch.finfo(dtype).eps
    wrong = x.to(device).tanh().cpu().double().numpy() - np.tanh(x.double().numpy())
    return bool((np.abs(wrong) <= allowed).all())
