"""Which backend computes: the one LINFDIST_BACKEND names, else the first that can."""

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

import torch
from torch import Tensor

from .backends import Backend, Kernels, native, reference, triton

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
    """What can run here, best first, and why the rest cannot."""
    probe = torch.empty(0)
    reasons = {"native": native.unsupported(probe, probe), "triton": triton.unavailable(), "reference": []}
    details = {"native": "", "triton": "", "reference": "plain torch, any device"}
    if not reasons["native"]:
        try:
            details["native"] = f"{native.isa()} (of {', '.join(native.isas())})"
        except native.InstructionSetError as error:
            reasons["native"] = [str(error)]
    if not reasons["triton"]:
        details["triton"] = triton.detail()
    return [BackendStatus(name, not reasons[name], tuple(reasons[name]), details[name]) for name in BACKENDS]


def pick_backend(x: Tensor, w: Tensor) -> Backend:
    """The backend for images x and kernels w (in the backward, any two tensors of their dtype and device)."""
    forced = forced_backend()
    if forced:
        _refuse(forced, BACKENDS[forced].unsupported(x, w))
        return BACKENDS[forced]
    able = (backend for backend in BACKENDS.values() if not backend.unsupported(x, w))
    backend = next(backend for backend in able if not _only_on_request(backend, x))
    if backend is reference:
        _warn_of_reference(x, w)
    return backend


def pick_kernels(x: Tensor, unsupported: Callable[[Kernels], list[str]]) -> Kernels | None:
    """Whose kernels run an operation on x that plain torch can do too, given why each cannot; None for plain torch."""
    forced = forced_backend()
    if forced:
        kernels = KERNELS.get(forced)
        _refuse(forced, unsupported(kernels) if kernels else [])
        return kernels
    able = (kernels for kernels in KERNELS.values() if not unsupported(kernels))
    return next((kernels for kernels in able if not _only_on_request(kernels, x)), None)


def native_for(x: Tensor, name: str) -> ModuleType | None:
    """The native backend, if it has a kernel of this name and may run it on x: for what no other backend has."""
    if forced_backend() not in ("", "native") or native.unsupported(x, x) or not native.has(name):
        return None
    return native


def _only_on_request(backend: Backend | Kernels, x: Tensor) -> bool:
    """Triton's interpreter is for tests: on the CPU it runs if it is asked for by name."""
    return backend is triton and x.device.type == "cpu"


def forced_backend() -> str:
    """The backend that LINFDIST_BACKEND names; empty if it names none."""
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
