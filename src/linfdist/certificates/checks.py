"""Refuse every network, every input and every device for which a proof would not hold."""

import copy
import inspect
import math
import os
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.modules import module as nn_module

from ..bounds.head import DOUBLE_TANH_EPS, TANH_EPS
from ..data.samples import check_plain
from ..models import PixelNet
from ..nn import Box, DistLinear
from ..nn.base import Contract, check_as_made
from ..ops.machine import DeviceError, choose_device

PROVED = ("cpu", "cuda")  # types of devices; torch calls GPUs of AMD cuda, too
Model = TypeVar("Model")
SIDE = 256  # of the matrices that are tried: large enough for the kernels that large ones get


def on_device(model: Model, device: str | torch.device | None) -> Model:
    """Return a network on a device: itself if it is already there, else a copy; None keeps its device."""
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

    Its tensors are cloned, because `deepcopy` copies storages, which not every device supports. Tensors of other types
    than torch's own copy themselves and keep their device; the checks refuse them.
    """
    copied: dict[int, Any] = {}
    for tensor in tensors_of(model):
        if type(tensor) in (Tensor, nn.Parameter):
            own = tensor.detach().to(device or tensor.device, copy=True)
            parameter = isinstance(tensor, nn.Parameter)
            copied[id(tensor)] = nn.Parameter(own, tensor.requires_grad) if parameter else own
    return copy.deepcopy(model, copied)


def tensors_of(model: object) -> list[Tensor]:
    """Return the parameters and buffers of a network of modules; an empty list for others."""
    return [*model.parameters(), *model.buffers()] if isinstance(model, nn.Module) else []


def check_device(device: torch.device) -> None:
    """Raise ValueError if proofs do not hold for what this device computes, as far as that is known or can be tried.

    The CPU is trusted (docs/trust.md). A GPU must pass `wrong_arithmetic`, once in a process.
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
    """Test the operations of a device that proofs rely on, in a few milliseconds; name those with wrong results.

    Expected values come from the CPU. Passing is no proof: the trial catches products in too little precision, fast
    division, wrong kernels and broken hardware. Denormal numbers are left out: proofs hold with and without them.
    """
    wrong = []
    for dtype in (torch.float32, torch.float64):
        wrong += [f"{name} in {str(dtype)[6:]}" for name, right in _trials(dtype, device) if not right]
    return wrong


def _trials(dtype: torch.dtype, device: torch.device) -> Iterator[tuple[str, bool]]:
    """Yield each operation tried in one precision, and whether its result is NumPy's on the CPU."""
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
    """Return pairs of numbers of all signs, sizes from 2^-20 to 2^20 and all digits, without denormal results."""
    generator = torch.Generator().manual_seed(0)
    count = SIDE**2

    def draw() -> Tensor:
        sign = 2.0 * torch.randint(2, (count,), generator=generator) - 1
        digits = 1 + torch.rand(count, dtype=torch.float64, generator=generator)
        size = torch.exp2(torch.randint(-20, 20, (count,), generator=generator).double())
        return (sign * digits * size).to(dtype)

    return draw(), draw()


def _distances(dtype: torch.dtype, device: torch.device) -> bool:
    """Return whether a dist layer and its bounds, computed by our backend there, have the right bits."""
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
    """Return whether tanh errs by no more than the bounds of heads allow."""
    x = torch.linspace(-10, 10, 4001, dtype=dtype)
    allowed = (TANH_EPS if dtype == torch.float32 else DOUBLE_TANH_EPS) * torch.finfo(dtype).eps
    wrong = x.to(device).tanh().cpu().double().numpy() - np.tanh(x.double().numpy())
    return bool((np.abs(wrong) <= allowed).all())


# What a network is, and how it reads images and names a class: said once for all in `PixelNet`.
COMPOSED = (
    *("forward", "features", "features_box", "predict", "prover"),
    *("shapes", "from_bytes", "to_pixels", "nearest", "floats"),
)
CALLS = ("__call__", "_call_impl", "_wrapped_call_impl", "__getattribute__", "__getattr__")  # the way to `forward`


def check_network(network: PixelNet) -> None:
    """Raise unless every part of the network declares the contract, is in eval mode and unmodified.

    It does not look for values that are not finite: `rounding_error` finds them.
    """
    for name, module in _declared(type(network).__name__, network):
        _check_module(name, module)
    check_process([module for module in network.modules() if isinstance(module, Contract)])
    _check_tensors(network)
    if not math.isfinite(network.lipschitz):
        raise ValueError("the Lipschitz constant of the network is beyond all floats: nothing can be certified with it")
    if network.classes < 2:
        raise ValueError("a network with one class has no margin to certify: it needs at least two classes")


def check_process(parts: Iterable[Contract]) -> None:
    """Raise if a setting of this process breaks the declarations of a network's parts; called for every certificate."""
    if nn_module._global_forward_hooks or nn_module._global_forward_pre_hooks:
        raise ValueError("global forward hooks are registered, which can change what a network computes: remove them")
    if any(part.multiplies for part in parts):
        check_products()


EXACT_PRODUCTS = ("none", "ieee")  # torch's words for float32 products in float32
EXACT_MODES = {  # what asks oneDNN and cuBLAS for other products than torch does, and what leaves them as they are
    "ONEDNN_DEFAULT_FPMATH_MODE": "STRICT",
    "DNNL_DEFAULT_FPMATH_MODE": "STRICT",
    "NVIDIA_TF32_OVERRIDE": "0",
    "CUBLAS_EMULATE_SINGLE_PRECISION": "0",
    "CUBLAS_EMULATE_DOUBLE_PRECISION": "0",
}


def check_products() -> None:
    """Raise ValueError if torch may compute matrix products in less than the precision of their factors."""
    for variable, harmless in EXACT_MODES.items():
        mode = os.environ.get(variable) or harmless
        if mode.upper() != harmless:
            raise ValueError(
                f"{variable}={mode}: products may be computed in less than the network's precision, which its "
                "bounds do not cover: unset it"
            )
    backends: Any = torch.backends
    for part in (backends, backends.mkldnn.matmul, backends.cuda.matmul):
        precision = part.fp32_precision
        if precision not in EXACT_PRODUCTS:
            raise ValueError(
                f"torch may compute float32 products in {precision}, which the bounds of the network do not "
                'cover: call torch.set_float32_matmul_precision("highest") first'
            )


def _declared(name: str, module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Return all modules by name; TypeError for one that neither declares the contract nor belongs to one that does.

    The items of a list count as children of its owner.
    """
    if not isinstance(module, Contract):
        raise TypeError(
            f"{name} is a {type(module).__name__}, whose Lipschitz constant and rounding are unknown: "
            "nothing can be certified with it"
        )
    if not _declares(type(module)):
        raise TypeError(
            f"{name} is a {type(module).__name__}, which inherits its declarations from another class and may compute "
            "anything: nothing can be certified with it"
        )
    yield name, module
    for place, child in _children(name, module, module.parts):
        if type(child) in module.parts:
            yield place, child
        else:
            yield from _declared(place, child)


def _declares(cls: type[Contract]) -> bool:
    """Return whether the class itself declares the contract, instead of inheriting another's declarations."""
    above = [each for each in cls.__mro__[1:] if issubclass(each, Contract)]
    return not inspect.isabstract(cls) and all(inspect.isabstract(each) or each is Contract for each in above)


def _children(name: str, module: nn.Module, parts: tuple[type[nn.Module], ...]) -> Iterator[tuple[str, nn.Module]]:
    for own, child in module.named_children():
        yield f"{name}.{own}", child
        if type(child) in parts:
            yield from _children(f"{name}.{own}", child, parts)


def _check_module(name: str, module: nn.Module) -> None:
    called = [each for each in CALLS if getattr(type(module), each) is not getattr(nn.Module, each)]
    if called:
        raise TypeError(
            f"{name} is a {type(module).__name__} with its own {', '.join(called)}: it may compute anything"
        )
    if module.training:
        raise ValueError("a network in training mode cannot be certified: call .eval() first")
    check_as_made(name, module)
    if isinstance(module, PixelNet):
        _check_composed(name, module)
    if isinstance(module, Contract):
        module.check_shapes(name)
        module.check(name)


def _check_composed(name: str, network: PixelNet) -> None:
    other = [each for each in COMPOSED if getattr(type(network), each) is not getattr(PixelNet, each)]
    if other:
        raise TypeError(
            f"{name} has its own {', '.join(other)}: a network is the readout of its body, and certificates hold for "
            "nothing else"
        )
    for part in ("body", "readout"):
        one = getattr(network, part)
        if one is not getattr(network, part) or all(one is not module for module in network.modules()):
            raise TypeError(
                f"{name}.{part} is not a submodule of the network, so it cannot be checked: register it as one"
            )


def _check_tensors(network: PixelNet) -> None:
    kinds = set()
    for name, tensor in [*network.named_parameters(), *network.named_buffers()]:
        if type(tensor) not in (Tensor, nn.Parameter):
            raise TypeError(f"{name} is a {type(tensor).__name__}: certificates need plain tensors")
        kinds.add((tensor.dtype, tensor.device))
    network.any_tensor  # noqa: B018 (TypeError if there is none)
    if len(kinds) > 1 or next(iter(kinds))[0] not in (torch.float32, torch.float64):
        found = ", ".join(sorted(f"{dtype} on {device}" for dtype, device in kinds))
        raise TypeError(f"a network to certify must be float32 or float64 throughout, on one device; this one: {found}")


def check_images(network: PixelNet, x: Tensor) -> None:
    """Raise unless x is a batch of the network's images, in its precision, on its device and in [0, 1].

    The device must be one that proofs hold on.
    """
    check_plain(x, "x")
    network.check_images(x)
    weight = network.any_tensor
    if x.dtype != weight.dtype or x.device != weight.device:
        raise TypeError(f"x is {x.dtype} on {x.device}, but the network is {weight.dtype} on {weight.device}")
    check_device(x.device)
    if torch.is_autocast_enabled(x.device.type):
        raise ValueError("certificates hold for the network in its own precision: leave torch.autocast first")
    if x.numel() == 0:
        return
    low, high = (end.item() for end in torch.aminmax(x))
    if not (low >= 0 and high <= 1):  # NaN fails too
        raise ValueError(f"pixels must lie in [0, 1], got values from {low!r} to {high!r}: for bytes, x.float() / 255")


def check_eps(eps: Tensor, x: Tensor) -> None:
    """Raise unless eps is one finite radius >= 0 for each pixel of x, or broadcasts to that."""
    check_plain(eps, "eps")
    if not eps.is_floating_point():
        raise TypeError(f"eps as a tensor must be floating-point, got {eps.dtype}")
    try:
        eps.broadcast_to(x.shape)
    except RuntimeError:
        raise ValueError(f"eps of shape {tuple(eps.shape)} does not broadcast to x {tuple(x.shape)}") from None
    wrong = ~(eps.isfinite() & (eps >= 0))
    if wrong.any():
        raise ValueError(f"eps must be finite and not negative, got {eps[wrong][0].item()!r}")
    if (eps > 1).any():
        raise ValueError(f"eps must be at most 1, on the 0–1 intensity scale, got {eps.max().item()!r}")
