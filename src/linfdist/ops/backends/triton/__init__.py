"""The Triton backend: kernels for NVIDIA and AMD GPUs, and for any CPU under Triton's interpreter.

Each file beside this one holds the kernels of one operation, and `variants()`, which lists those to compile ahead of
time. Triton is imported when a kernel is first used: `import linfdist` neither needs it nor waits for it.

Numbers: at p = inf the reference's bits, those of gradients too, as long as dw is summed in one segment (`layer`); at
finite p the tolerances of `linfdist.dist`. float16 and bfloat16 are read as they are, computed in float32, and rounded
once, at the end. No result depends on a tile's size, and none is summed by atomics.
"""

import functools
import importlib
import importlib.util
import os
from collections.abc import Callable
from importlib import metadata
from typing import Any

import torch
from torch import Tensor

name = "triton"

DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
LARGEST = 2**31  # elements of a tensor: offsets inside one are 32-bit numbers


@functools.cache
def missing() -> str:
    """Why Triton cannot be used at all; empty if it is installed."""
    return "" if importlib.util.find_spec("triton") else "not installed: run `pip install triton` (Linux)"


def interpreted() -> bool:
    """Whether kernels run in Triton's interpreter, on the CPU, for tests. Triton reads this when it is imported."""
    return os.environ.get("TRITON_INTERPRET", "0").lower() in ("1", "true", "yes", "on", "y")


def unsupported(x: Tensor, w: Tensor) -> list[str]:
    reasons = _elsewhere(x)
    if x.dtype not in DTYPES:
        reasons.append(f"needs float32, float64, float16 or bfloat16, got {x.dtype}")
    if max(x.numel(), w.numel()) >= LARGEST:
        reasons.append(f"needs tensors of fewer than 2^31 elements, got {tuple(x.shape)} and {tuple(w.shape)}")
    return reasons


def exact_unsupported(x: Tensor) -> list[str]:
    small = x.numel() < LARGEST
    return _elsewhere(x) + ([] if small else [f"needs tensors of fewer than 2^31 elements, got {tuple(x.shape)}"])


def _elsewhere(x: Tensor) -> list[str]:
    """Return why Triton's kernels cannot run on the tensor's device."""
    reasons = [missing()] if missing() else []
    device = x.device.type
    if device == "cpu" and not interpreted():
        reasons.append(
            "needs tensors on a CUDA or ROCm device, got cpu: there only Triton's interpreter runs, slowly, "
            "if TRITON_INTERPRET=1 is set before Python starts"
        )
    elif device not in ("cpu", "cuda"):
        reasons.append(f"needs tensors on a CUDA or ROCm device, got {device}")
    return reasons


def unavailable() -> list[str]:
    """Return why the backend cannot run on this machine at all; empty if it can."""
    if missing():
        return [missing()]
    return [] if interpreted() or torch.cuda.is_available() else ["torch finds no CUDA or ROCm device"]


def version() -> str:
    """Return the version of the installed Triton; with ROCm's builds of torch its package has another name."""
    try:
        return metadata.version("triton")
    except metadata.PackageNotFoundError:
        return str(importlib.import_module("triton").__version__)


def detail() -> str:
    """Return Triton's version and the devices it runs on."""
    found = f"triton {version()}"
    if interpreted():
        return f"{found}, interpreter on the CPU, for tests"
    names = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    return f"{found}, {', '.join(names)}"


def only_on_request(x: Tensor) -> bool:
    """Whether x lies on the CPU, where Triton's interpreter runs, for tests."""
    return x.device.type == "cpu"


def _function(module: str, name: str) -> Callable[..., Any]:
    """Wrap the function of that name; its module, and with it Triton, is imported at the first call."""

    def call(*args: Any) -> Any:
        return getattr(importlib.import_module(f".{module}", __name__), name)(*args)

    return call


inf_dist = _function("inf", "inf_dist")
inf_dist_argmax = _function("inf", "inf_dist_argmax")
inf_dist_backward = _function("inf_backward", "inf_dist_backward")
p_dist = _function("finite", "p_dist")
p_dist_backward = _function("finite_backward", "p_dist_backward")
box_dist = _function("box", "box_dist")
box_dist_argmax = _function("box", "box_dist_argmax")
adam_ = _function("adam", "adam_")
exact_dense = _function("exact", "exact_dense")
exact_sided = _function("exact", "exact_sided")
exact_network = _function("exact", "exact_network")
