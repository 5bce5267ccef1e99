"""What is refused: every network and every input about which a proof would not hold."""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as nn_module

from ..models import ConvDistNetMLP, DistNet, DistNetMLP, PixelNet
from ..nn import (
    CenterCrop,
    DistConv2d,
    DistLinear,
    Flatten,
    Head,
    MeanShift,
    Normalize,
    ScaledLinear,
    Stack,
)
from .rounding import largest

NETWORKS: tuple[type[nn.Module], ...] = (DistNet, DistNetMLP, ConvDistNetMLP)
LAYERS: tuple[type[nn.Module], ...] = (
    Stack, nn.ModuleList, CenterCrop, Normalize, Flatten, DistLinear, DistConv2d, MeanShift, Head, ScaledLinear,
)  # fmt: skip
NAMES = {kind: frozenset(dir(kind)) for kind in NETWORKS + LAYERS}  # of their methods and constants
EXACT_PRODUCTS = ("none", "ieee")  # torch's words for float32 products in float32


def check_network(network: PixelNet) -> None:
    """Raise unless the network is one whose every layer is known, in eval mode and as its class made it.

    Dist layers are not searched for values that are not finite: `rounding_error` finds them.
    """
    if type(network) not in NETWORKS:  # a subclass may compute anything
        names = ", ".join(each.__name__ for each in NETWORKS)
        raise TypeError(f"certificates exist for {names} only, not for {type(network).__name__}")
    for name, module in network.named_modules():
        _check_module(name or type(network).__name__, module)
    if nn_module._global_forward_hooks or nn_module._global_forward_pre_hooks:
        raise ValueError("global forward hooks are registered, which can change what a network computes: remove them")
    _check_tensors(network)
    if class_count(network) < 2:
        raise ValueError("a network with one class has no second one to tell it from: nothing can be certified")
    if isinstance(network, DistNetMLP | ConvDistNetMLP):
        for parameter in network.head.parameters():
            largest(parameter)
        _check_products()


def _check_module(name: str, module: nn.Module) -> None:
    if type(module) not in NETWORKS + LAYERS:
        raise TypeError(
            f"{name} is a {type(module).__name__}, whose Lipschitz constant and rounding are not known: "
            "nothing can be certified with it"
        )
    if module.training:
        raise ValueError("a network in training mode cannot be certified: call .eval() first")
    if module._forward_hooks or module._forward_pre_hooks:
        raise ValueError(f"{name} has forward hooks, which can change what it computes: remove them first")
    replaced = sorted(vars(module).keys() & NAMES[type(module)])
    if replaced:
        raise ValueError(f"{name} has its own {', '.join(replaced)} in place of its class's: nothing is known of that")
    if isinstance(module, Normalize):
        if module.std.dim() != 0:
            raise ValueError(
                f"{name}.std must be one number, so that a ball of pixels stays a ball; got {tuple(module.std.shape)}"
            )
        if not torch.finfo(torch.float32).tiny <= module.std.item() < math.inf:
            raise ValueError(f"{name}.std must be positive, finite and no denormal, got {module.std.item()!r}")


def _check_tensors(network: PixelNet) -> None:
    kinds = set()
    for name, tensor in [*network.named_parameters(), *network.named_buffers()]:
        if type(tensor) not in (Tensor, nn.Parameter):
            raise TypeError(f"{name} is a {type(tensor).__name__}: certificates need plain tensors")
        kinds.add((tensor.dtype, tensor.device))
    if len(kinds) > 1 or next(iter(kinds))[0] not in (torch.float32, torch.float64):
        found = ", ".join(sorted(f"{dtype} on {device}" for dtype, device in kinds))
        raise TypeError(f"a network to certify must be float32 or float64 throughout, on one device; this one: {found}")


def _check_products() -> None:
    """The bounds of the head are those of products in its own precision."""
    backends: Any = torch.backends
    for part in (backends, backends.mkldnn.matmul, backends.cuda.matmul):
        precision = part.fp32_precision
        if precision not in EXACT_PRODUCTS:
            raise ValueError(
                f"torch may compute float32 products in {precision}, which the bounds of the head do not "
                'cover: call torch.set_float32_matmul_precision("highest") first'
            )


def class_count(network: PixelNet) -> int:
    """How many logits."""
    if isinstance(network, DistNet):
        return network.last.out_features
    if isinstance(network, DistNetMLP | ConvDistNetMLP):
        return network.head.output.out_features
    raise TypeError(f"the logits of {type(network).__name__} are not known")


def check_images(network: PixelNet, x: Tensor) -> None:
    """Raise unless x is a batch of the network's images, in its precision, on its device and in [0, 1]."""
    if type(x) not in (Tensor, nn.Parameter):
        raise TypeError(f"x must be a plain tensor, got {type(x).__name__}")
    network.check_images(x)
    weight = next(network.parameters())
    if x.dtype != weight.dtype or x.device != weight.device:
        raise TypeError(f"x is {x.dtype} on {x.device}, but the network is {weight.dtype} on {weight.device}")
    if torch.is_autocast_enabled(x.device.type):
        raise ValueError("certificates hold for the network in its own precision: leave torch.autocast first")
    if x.numel() == 0:
        return
    low, high = (end.item() for end in torch.aminmax(x))
    if not (low >= 0 and high <= 1):  # NaN fails too
        raise ValueError(f"pixels must lie in [0, 1], got values from {low!r} to {high!r}: for bytes, x.float() / 255")


def check_labels(network: PixelNet, y: Tensor, count: int) -> None:
    """Raise unless y are `count` classes of the network."""
    if not isinstance(y, Tensor) or y.dtype.is_floating_point or y.dtype.is_complex or y.dtype == torch.bool:
        raise TypeError(f"y must be a tensor of integers, got {y.dtype if isinstance(y, Tensor) else type(y).__name__}")
    if tuple(y.shape) != (count,):
        raise ValueError(f"y must have shape ({count},), one class an image; got {tuple(y.shape)}")
    classes = class_count(network)
    if count and not (int(y.min()) >= 0 and int(y.max()) < classes):
        raise ValueError(f"y must hold classes 0 to {classes - 1}, got {int(y.min())} to {int(y.max())}")


def check_eps(eps: Tensor, x: Tensor) -> None:
    """Raise unless eps is one finite radius >= 0 for each pixel of x, or broadcasts to that."""
    if not eps.is_floating_point():
        raise TypeError(f"eps as a tensor must be floating-point, got {eps.dtype}")
    try:
        eps.broadcast_to(x.shape)
    except RuntimeError:
        raise ValueError(f"eps of shape {tuple(eps.shape)} does not broadcast to x {tuple(x.shape)}") from None
    wrong = ~(eps.isfinite() & (eps >= 0))
    if wrong.any():
        raise ValueError(f"eps must be finite and not negative, got {eps[wrong][0].item()!r}")
