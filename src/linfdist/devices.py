"""Where to compute: on the CPU, or on a GPU that a fast backend can use. All verbs and functions ask here."""

import os
from dataclasses import dataclass

import torch

from .errors import LinfdistError
from .ops.backends import native, triton
from .ops.select import BACKENDS, forced_backend

AUTO = "auto"
CPU = torch.device("cpu")
SLOWEST = list(BACKENDS)[-1]  # plain torch, which runs anywhere


class DeviceError(LinfdistError, ValueError):
    """A device that is not here, or whose name is not understood."""


@dataclass(frozen=True)
class Gpu:
    """A GPU that torch can use. backend: the fast one for it, or empty; missing: then, why there is none."""

    device: torch.device
    name: str
    architecture: str  # sm_86, gfx942; empty where torch does not tell
    memory: int  # bytes; 0 where torch does not tell
    backend: str
    missing: tuple[str, ...]


def choose(device: str | torch.device = AUTO) -> torch.device:
    """Return the device that is meant: "cpu", "cuda", "cuda:1" (also of AMD), another type that torch has, or "auto".

    "auto" is a GPU that a fast backend can use, and else the CPU. Among the processes that `torchrun` has started on
    this machine, "cuda" and "auto" mean the GPU of the process's own number. DeviceError says what there is instead.
    """
    if isinstance(device, str) and device == AUTO:
        found = fast_gpus()
        return _own(found, AUTO) if found else CPU
    wanted = _parse(device)
    if wanted.type == "cpu":
        return CPU
    here = [gpu.device for gpu in gpus() if gpu.device.type == wanted.type]
    if not here:
        raise DeviceError(
            f"device = {str(device)!r}: there is none here, {why_none(wanted.type)}; there is {_listing()}"
        )
    if wanted.index is None:
        return _own(here, wanted.type)
    if wanted.index >= len(here):
        raise DeviceError(f"device = {str(device)!r}: there is no such one here; there is {_listing()}")
    if _processes_here() > 1 and wanted.index != _local_rank():
        raise DeviceError(
            f"device = {str(device)!r}: names one device for the {_processes_here()} processes of this machine: "
            f"say {wanted.type}, and each takes its own"
        )
    return wanted


def gpus() -> list[Gpu]:
    """List the GPUs that torch can use, of any make."""
    kind = torch.accelerator.current_accelerator(check_available=True)
    if kind is None or kind.type == "cpu":
        return []
    devices = [torch.device(kind.type, number) for number in range(torch.accelerator.device_count())]
    return [_gpu(device) for device in devices]


def fast_gpus() -> list[torch.device]:
    """List the GPUs that a fast backend can use; none if LINFDIST_BACKEND names one that cannot."""
    return [gpu.device for gpu in gpus() if gpu.backend]


def backend_for(device: torch.device) -> tuple[str, tuple[str, ...]]:
    """Name the fast backend that computes float32 there; or give an empty name, and the reasons why none can."""
    probe, forced = torch.empty(0, device=device), forced_backend()
    reasons: list[str] = []
    for name, backend in BACKENDS.items():
        if name == SLOWEST or (name == native.name and device.type != "cpu"):
            continue
        if forced and name != forced:
            reasons.append(f"LINFDIST_BACKEND={forced} rules {name} out")
        elif why := backend.unsupported(probe, probe):
            reasons.append(f"{name}: {'; '.join(why)}")
        else:
            return name, ()
    return "", tuple(reasons)


def name_of(device: torch.device) -> str:
    """Name a GPU as torch does: `NVIDIA GeForce RTX 3090`."""
    return _gpu(device).name


def label(device: torch.device) -> str:
    """Name a device for people: `cuda:0 (NVIDIA GeForce RTX 3090)`, or `cpu`."""
    return "cpu" if device.type == "cpu" else f"{device} ({name_of(device)})"


def why_none(kind: str = "cuda") -> str:
    """Say why torch has no device of that type here."""
    if kind != "cuda":
        return f"torch {torch.__version__} finds no {kind}"
    if torch.version.cuda is None and torch.version.hip is None:
        return f"torch {torch.__version__} was built without CUDA and ROCm: install a build that has one (docs/gpu.md)"
    built = f"CUDA {torch.version.cuda}" if torch.version.cuda else f"ROCm {torch.version.hip}"
    return f"torch {torch.__version__}, built for {built}, finds no GPU: check its driver (nvidia-smi, rocm-smi)"


def versions() -> dict[str, str]:
    """Name what a GPU needs besides its driver, each with its version, or with what is missing."""
    found = triton.missing() or triton.version()
    return {"CUDA": torch.version.cuda or "", "ROCm": torch.version.hip or "", "triton": found}


def synchronise(device: torch.device) -> None:
    """Wait until everything that was asked of a device is done: before a clock is read."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


def _parse(device: str | torch.device) -> torch.device:
    try:
        wanted = torch.device(device)
    except (RuntimeError, TypeError):
        raise DeviceError(f"device = {device!r}: must be cpu, cuda, cuda:K or auto; there is {_listing()}") from None
    if wanted.type == "meta":
        raise DeviceError("device = 'meta': computes nothing; there is " + _listing())
    return wanted


def _own(devices: list[torch.device], asked: str) -> torch.device:
    """Pick the device of this process among those of this machine."""
    if _processes_here() > len(devices):
        raise DeviceError(
            f"device = {asked!r}: {_processes_here()} processes were started on this machine, which has "
            f"{len(devices)} GPU{'s' * (len(devices) > 1)}: start as many as there are (torchrun --nproc-per-node "
            f"{len(devices)}), or use cpu"
        )
    return devices[_local_rank()]


def _local_rank() -> int:
    return int(os.environ.get("LOCAL_RANK", "0"))


def _processes_here() -> int:
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def _gpu(device: torch.device) -> Gpu:
    backend, missing = backend_for(device)
    if device.type != "cuda":
        return Gpu(device, device.type, "", 0, backend, missing)
    facts = torch.cuda.get_device_properties(device)
    amd = getattr(facts, "gcnArchName", "").split(":")[0] if torch.version.hip else ""
    architecture = amd or f"sm_{facts.major}{facts.minor}"
    return Gpu(device, facts.name, architecture, facts.total_memory, backend, missing)


def _listing() -> str:
    return ", ".join(["cpu", *(str(gpu.device) for gpu in gpus())])
