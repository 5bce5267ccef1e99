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

name = "native"

DTYPES = (torch.float32, torch.float64)


@functools.cache
def missing() -> str:
    """Why the library cannot be used at all; empty once it is loaded."""
    folders = [Path(folder) for folder in linfdist.__path__]  # an editable install has two: of the library and of src
    libraries = [file for folder in folders for file in sorted(folder.glob("_native.*"))]
    if not libraries:
        notes = [file.read_text().strip() for folder in folders for file in folder.glob("_no_native.txt")]
        return f"not built: {notes[0] if notes else remedy(Path(linfdist.__file__))}"
    try:
        torch.ops.load_library(str(libraries[0]))
    except OSError as error:
        return f"built, but does not load: {error}"
    return ""


def remedy(package: Path) -> str:
    """Say how to build the library: a clone has its sources, an installed package has to be installed again."""
    clone = package.parents[2]
    if (clone / "csrc").is_dir():
        return f"run `make setup` or `pip install .` in {clone}"
    return "install linfdist again, in an environment that has torch and a C++ compiler"


def unsupported(x: Tensor, w: Tensor) -> list[str]:
    reasons = [missing()] if missing() else []
    if x.device.type != "cpu":
        reasons.append(f"needs tensors on cpu, got {x.device.type}")
    if x.dtype not in DTYPES:
        reasons.append(f"needs float32 or float64, got {x.dtype}")
    return reasons


def unavailable() -> list[str]:
    if missing():
        return [missing()]
    try:
        isa()
    except InstructionSetError as error:
        return [str(error)]
    return []


def detail() -> str:
    """Name the instruction set in use, and those that this CPU has."""
    return f"{isa()} (of {', '.join(isas())})"


def only_on_request(x: Tensor) -> bool:
    return False


@functools.cache
def has(name: str) -> bool:
    """Return whether the library has an operator of this name: one that was built earlier may not."""
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
    """LINFDIST_ISA names an instruction set that cannot run here: a ValueError and a RuntimeError."""


def isa() -> str:
    """Return the instruction set in use; LINFDIST_ISA forces one. The library reads it once, when it first computes."""
    return str(_operator("isa")())


def isas() -> list[str]:
    """Return the instruction sets that are compiled in and that this CPU has, best first."""
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


def _function(name: str, geometry: int | None = None) -> Callable[..., Any]:
    """Wrap the operator of that name, which is looked up at the first call.

    geometry: which argument is a `Geometry`, if one is: the operator takes its four parts instead.
    """
    if geometry is None:
        return lambda *args: _operator(name)(*args)
    return lambda *args: _operator(name)(*args[:geometry], *args[geometry], *args[geometry + 1 :])


inf_dist = _function("inf_dist", 2)
inf_dist_argmax = _function("inf_dist_argmax", 2)
inf_dist_backward = _function("inf_dist_backward", 5)
p_dist = _function("p_dist", 3)
p_dist_backward = _function("p_dist_backward", 5)
box_dist = _function("box_dist", 3)
box_dist_argmax = _function("box_dist_argmax", 3)
box_dist_backward = _function("box_dist_backward", 8)
adam_ = _function("adam_")
exact_dense = _function("exact_dense")
exact_sided = _function("exact_sided")
exact_network = _function("exact_network")
cached_lists = _function("cached_lists")
inf_dist_cached = _function("inf_dist_cached")
box_dist_cached = _function("box_dist_cached")
sizes = _function("sizes")
