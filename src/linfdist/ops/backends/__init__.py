"""The backends: each computes the same functions on checked, contiguous tensors, and says why it cannot.

The one that LINFDIST_BACKEND names computes, else the first of BACKENDS that can.

All functions take images x (N, C, H, W) and kernels w (O, C/groups, KH, KW) of one dtype and device, and their
geometry; outputs are (N, O, OH, OW). The I = C/groups * KH * KW inputs of a neuron are counted row-major, and padding
is the value 0.
"""

import math
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Protocol

import torch
from torch import Tensor, nn

from ..geometry import Geometry, Ints
from . import native, reference, triton


class Backend(Protocol):
    @property
    def name(self) -> str: ...

    def unsupported(self, x: Tensor, w: Tensor) -> list[str]:
        """Return the reasons why these tensors cannot be computed here; empty if they can."""

    def unavailable(self) -> list[str]:
        """Return the reasons why the backend cannot run on this machine at all; empty if it can."""

    def detail(self) -> str:
        """Describe what an available backend runs on."""

    def only_on_request(self, x: Tensor) -> bool:
        """Whether it computes x only if LINFDIST_BACKEND names it."""

    def inf_dist(self, x: Tensor, w: Tensor, geometry: Geometry, /) -> Tensor:
        """max_i |x_i - w_i|."""

    def inf_dist_argmax(self, x: Tensor, w: Tensor, geometry: Geometry, /) -> tuple[Tensor, Tensor]:
        """Return `inf_dist` and `where` (int32): the first arg-max i, or ~i where x_i < w_i.

        The first NaN counts as the max.
        """

    def inf_dist_backward(
        self, grad: Tensor, y: Tensor, where: Tensor, x_shape: Ints, w_shape: Ints, geometry: Geometry,
        need_x: bool, need_w: bool, /
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """(dx, dw); an unneeded one is empty."""

    def p_dist(self, x: Tensor, w: Tensor, p: float, geometry: Geometry, /) -> Tensor:
        """(sum_i |x_i - w_i|^p)^(1/p) for finite p."""

    def p_dist_backward(
        self, grad: Tensor, x: Tensor, w: Tensor, y: Tensor, p: float, geometry: Geometry, need_x: bool, need_w: bool, /
    ) -> tuple[Tensor, Tensor]:
        """(dx, dw); an unneeded one is empty."""

    def box_dist(self, lower: Tensor, upper: Tensor, w: Tensor, geometry: Geometry, /) -> tuple[Tensor, Tensor]:
        """Return the smallest and the largest max_i |x_i - w_i| over lower <= x <= upper."""

    def box_dist_argmax(
        self, lower: Tensor, upper: Tensor, w: Tensor, geometry: Geometry, /
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return `box_dist`, and for each bound the first i that attains it.

        It is i if attained by `lower - w` (`upper - w` for the larger bound), ~i if by `w - upper` (`w - lower`).
        """


class Kernels(Protocol):
    """Optional kernels of a backend; `linfdist.ops` has each in plain torch too: see `adam` and `exact`."""

    @property
    def name(self) -> str: ...

    def unsupported(self, x: Tensor, w: Tensor) -> list[str]: ...

    def only_on_request(self, x: Tensor) -> bool: ...

    def exact_unsupported(self, x: Tensor) -> list[str]:
        """Return the reasons why integer layers of this input cannot be computed here; empty if they can."""

    def adam_(
        self, w: Tensor, grad: Tensor, mean: Tensor, square: Tensor, lr: float, beta1: float, beta2: float, eps: float,
        decay: float, p: float, step: int, rows: int, /
    ) -> None:  # fmt: skip
        """Do one step on contiguous float32 tensors, in place; the decay's norms are taken over this many rows."""

    def exact_dense(self, x: Tensor, w: Tensor, b: Tensor, /) -> Tensor:
        """Compute what `exact.dense` does."""

    def exact_sided(self, *arguments: Tensor) -> Tensor:
        """Compute what `exact.sided` does."""

    def exact_network(
        self, images: Tensor, k: int, sizes: Ints, runs: Ints, neuron: Tensor, start: Tensor, middle: Tensor,
        inputs: Tensor, weight: Tensor, b: Tensor, /
    ) -> Tensor:  # fmt: skip
        """Compute what `exact.network` does: the parts of its `Chain` come one by one."""


# Best first; the last runs anything.
BACKENDS: dict[str, Backend] = {"native": native, "triton": triton, "reference": reference}
KERNELS: dict[str, Kernels] = {"native": native, "triton": triton}
LARGE = 1 << 28  # terms |x_i - w_i|, about a second of the reference backend


@dataclass(frozen=True)
class BackendStatus:
    """What a backend can do here, for float32 tensors where it computes; `reasons` says why it is not available."""

    name: str
    available: bool
    reasons: tuple[str, ...]
    detail: str


def backends() -> list[BackendStatus]:
    """List what can run here, best first, and why the rest cannot."""
    found = []
    for name, backend in BACKENDS.items():
        reasons = tuple(backend.unavailable())
        found.append(BackendStatus(name, not reasons, reasons, "" if reasons else backend.detail()))
    return found


def is_plain(*tensors: Tensor) -> bool:
    """Return whether these are CPU tensors that nothing traces, transforms or intercepts.

    Then a backend computes the same without an operator around it, which takes ten times as long as a small kernel.
    """
    return (
        not torch.compiler.is_compiling()
        and not torch._C._are_functorch_transforms_active()
        and not torch._C._len_torch_dispatch_stack()
        and torch._C._get_tracing_state() is None
        and torch.autograd.forward_ad._current_level < 0
        and all(type(tensor) in (Tensor, nn.Parameter) and tensor.is_cpu for tensor in tensors)
    )


def as_images(x: Tensor) -> Tensor:
    """(B, I) -> (B, I, 1, 1); images stay."""
    return x if x.dim() == 4 else x.view(*x.shape, 1, 1) if x.is_contiguous() else x[:, :, None, None]


def pick_backend(x: Tensor, w: Tensor) -> Backend:
    """Choose the backend for images x and kernels w (in the backward, any two tensors of their dtype and device)."""
    forced = forced_backend()
    if forced:
        _refuse(forced, BACKENDS[forced].unsupported(x, w))
        return BACKENDS[forced]
    able = (backend for backend in BACKENDS.values() if not backend.unsupported(x, w))
    backend = next(backend for backend in able if not backend.only_on_request(x))
    if backend is reference:
        _warn_of_reference(x, w)
    return backend


def pick_kernels(x: Tensor, unsupported: Callable[[Kernels], list[str]]) -> Kernels | None:
    """Choose the kernels for an operation on x; None for plain torch. unsupported: why a backend cannot."""
    forced = forced_backend()
    if forced:
        kernels = KERNELS.get(forced)
        _refuse(forced, unsupported(kernels) if kernels else [])
        return kernels
    able = (kernels for kernels in KERNELS.values() if not unsupported(kernels))
    return next((kernels for kernels in able if not kernels.only_on_request(x)), None)


def native_for(x: Tensor, name: str) -> ModuleType | None:
    """Return the native backend if it has a kernel of this name and may run it on x, else None."""
    if forced_backend() not in ("", "native") or native.unsupported(x, x) or not native.has(name):
        return None
    return native


_BITS = {torch.float32: torch.int32, torch.float64: torch.int64}


def sizes(tensor: Tensor) -> tuple[float, float]:
    """Return the smallest nonzero |t| (NaN if there is none) and the largest |t| (0 if t is empty).

    The largest is NaN if an entry is NaN.

    Numbers are compared by their bits, which have the same order, so denormal numbers count even if the processor
    flushes them to 0. A denormal result may be returned as 0 in that mode.
    """
    values = tensor.detach().contiguous()
    values = values if values.dtype in _BITS else values.double()  # halves, which that holds exactly
    native = native_for(values, "sizes")
    if native:
        least, largest = native.sizes(values).tolist()
        return least, largest
    if not values.numel():
        return math.nan, 0.0
    every = torch.iinfo(_BITS[values.dtype]).max  # all bits but the sign
    bits = values.view(_BITS[values.dtype]) & every
    found = torch.stack([bits.where(bits != 0, every).min(), bits.max()])
    least, largest = found.view(values.dtype).tolist()
    return least, largest


def forced_backend() -> str:
    """Return the backend that LINFDIST_BACKEND names; empty if it names none."""
    name = os.environ.get("LINFDIST_BACKEND", "")
    if name and name not in BACKENDS:
        raise ValueError(
            f"LINFDIST_BACKEND={name!r} is not a backend: set it to one of {', '.join(BACKENDS)}, "
            "or unset it to use the best one that can run"
        )
    return name


def _refuse(forced: str, reasons: list[str]) -> None:
    if reasons:
        raise RuntimeError(
            f"LINFDIST_BACKEND={forced!r} cannot run here ({'; '.join(reasons)}): "
            "change that, or unset it to use the best backend that can"
        )


def _warn_of_reference(x: Tensor, w: Tensor) -> None:
    device = x.device.type
    if device == "cpu" and native.missing():
        _warn_once(
            "missing",
            f"linfdist runs on its slow reference backend, because the native one is {native.missing()}. "
            "To get it, reinstall linfdist where a C++ compiler is found; "
            "to silence this, set LINFDIST_BACKEND=reference.",
        )
    elif device not in ("cpu", "meta"):
        _warn_once(
            device,
            f"linfdist runs on its slow reference backend for tensors on {device} "
            f"(triton: {'; '.join(triton.unsupported(x, w))}). To silence this, set LINFDIST_BACKEND=reference.",
        )
    elif x.numel() * w.numel() > LARGE * max(1, x.shape[1]):
        _warn_once(
            "large",
            f"linfdist runs on its slow reference backend for tensors of shape {tuple(x.shape)} and {tuple(w.shape)} "
            f"(native: {'; '.join(native.unsupported(x, w))}). To silence this, set LINFDIST_BACKEND=reference.",
        )


_warned: set[str] = set()


def _warn_once(kind: str, message: str) -> None:
    if kind not in _warned:
        _warned.add(kind)
        warnings.warn(message, stacklevel=2)
