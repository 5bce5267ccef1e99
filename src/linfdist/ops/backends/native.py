"""The C++ backend: one shared library beside the package, loaded on first use."""

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import linfdist

from ...errors import LinfdistError
from ..geometry import Geometry

name = "native"

DTYPES = (torch.float32, torch.float64)


@functools.cache
def missing() -> str:
    """Why the library cannot be used at all; empty once it is loaded."""
    folders = [Path(folder) for folder in linfdist.__path__]  # an editable install has two: of the library and of src
    libraries = [file for folder in folders for file in sorted(folder.glob("_native.*"))]
    if not libraries:
        notes = [file.read_text().strip() for folder in folders for file in folder.glob("_no_native.txt")]
        return f"not built: {notes[0]}" if notes else "not built: run `make setup` or `pip install .`"
    try:
        torch.ops.load_library(str(libraries[0]))
    except OSError as error:
        return f"built, but does not load: {error}"
    return ""


def unsupported(x: Tensor, w: Tensor) -> list[str]:
    reasons = [missing()] if missing() else []
    if x.device.type != "cpu":
        reasons.append(f"needs tensors on cpu, got {x.device.type}")
    if x.dtype not in DTYPES:
        reasons.append(f"needs float32 or float64, got {x.dtype}")
    return reasons


@functools.cache
def has(name: str) -> bool:
    """Whether the library has an operator of this name: one that was built long ago may not."""
    return not missing() and hasattr(torch.ops.linfdist_native, name)


def exact_unsupported(x: Tensor) -> list[str]:
    if missing():
        return [missing()]
    reasons = (
        []
        if has("exact_network")
        else ["the native library is older than these kernels: run `make setup` to build it again"]
    )
    return reasons + ([] if x.device.type == "cpu" else [f"needs tensors on cpu, got {x.device.type}"])


class InstructionSetError(LinfdistError, RuntimeError, ValueError):
    """LINFDIST_ISA names an instruction set that cannot run here: a wrong value, and a matter of this machine."""


def isa() -> str:
    """The instruction set in use; LINFDIST_ISA forces one. The library reads it once, when it first computes."""
    return str(_operator("isa")())


def isas() -> list[str]:
    """The instruction sets that are compiled in and that this CPU has, best first."""
    _check_built()
    return str(torch.ops.linfdist_native.isas()).split(",")


def _check_built() -> None:
    if missing():
        raise RuntimeError(f"the native backend is {missing()}")


@functools.cache
def _operator(name: str) -> Callable[..., Any]:
    _check_built()
    wanted = os.environ.get("LINFDIST_ISA", "")
    if wanted and wanted not in isas():
        raise InstructionSetError(
            f"LINFDIST_ISA={wanted} cannot run here; available: {', '.join(isas())}. "
            "Set LINFDIST_ISA to one of these, or unset it to use the best"
        )
    return getattr(torch.ops.linfdist_native, name).default


def _function(name: str) -> Callable[..., Any]:
    """The operator of that name; the geometry, one argument here, is four of the operator's."""

    def call(*args: Any) -> Any:
        flat = [part for arg in args for part in (arg if isinstance(arg, Geometry) else (arg,))]
        return _operator(name)(*flat)

    return call


def _without_geometry(name: str) -> Callable[..., Any]:
    return lambda *args: _operator(name)(*args)


inf_dist = _function("inf_dist")
inf_dist_argmax = _function("inf_dist_argmax")
inf_dist_backward = _function("inf_dist_backward")
p_dist = _function("p_dist")
p_dist_backward = _function("p_dist_backward")
box_dist = _function("box_dist")
box_dist_argmax = _function("box_dist_argmax")
adam_ = _function("adam_")
exact_dense = _function("exact_dense")
exact_sided = _function("exact_sided")
exact_network = _function("exact_network")
cached_lists = _without_geometry("cached_lists")
inf_dist_cached = _without_geometry("inf_dist_cached")
box_dist_cached = _without_geometry("box_dist_cached")
sizes = _without_geometry("sizes")
