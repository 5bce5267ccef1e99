"""This machine: which device computes (the CPU, or a GPU that a fast backend can use), its processor and versions."""

import os
import platform
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import torch

from ..errors import LinfdistError
from ..version import __version__
from .backends import BACKENDS, backends, forced_backend, native, triton

AUTO = "auto"
CPU = torch.device("cpu")
OVERRIDES = ("LINFDIST_BACKEND", "LINFDIST_ISA")
SLOWEST = list(BACKENDS)[-1]  # plain torch, which runs anywhere


class DeviceError(LinfdistError, ValueError):
    """A device that does not exist here, or whose name is unknown."""


@dataclass(frozen=True)
class Gpu:
    """A GPU that torch can use. backend: the fast one for it, or empty; missing: why there is none."""

    device: torch.device
    name: str
    architecture: str  # sm_86, gfx942; empty where torch does not tell
    memory: int  # bytes; 0 where torch does not tell
    backend: str
    missing: tuple[str, ...]


def choose_device(device: str | torch.device = AUTO) -> torch.device:
    """Return the named device: "cpu", "cuda", "cuda:1" (also for AMD), another type that torch has, or "auto".

    "auto" is a GPU that a fast backend can use, and else the CPU. Among the processes that `torchrun` has started on
    this machine, "cuda" and "auto" mean the GPU of the process's own number. Raises DeviceError that lists the devices
    that exist.
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


def device_name(device: torch.device) -> str:
    """Name a GPU as torch does: `NVIDIA GeForce RTX 3090`."""
    return _gpu(device).name


def device_label(device: torch.device) -> str:
    """Name a device for people: `cuda:0 (NVIDIA GeForce RTX 3090)`, or `cpu`."""
    return "cpu" if device.type == "cpu" else f"{device} ({device_name(device)})"


def why_none(kind: str = "cuda") -> str:
    """Say why torch has no device of that type here."""
    if kind != "cuda":
        return f"torch {torch.__version__} finds no {kind}"
    if torch.version.cuda is None and torch.version.hip is None:
        return f"torch {torch.__version__} was built without CUDA and ROCm: install a build that has one (docs/gpu.md)"
    built = f"CUDA {torch.version.cuda}" if torch.version.cuda else f"ROCm {torch.version.hip}"
    return f"torch {torch.__version__}, built for {built}, finds no GPU: check its driver (nvidia-smi, rocm-smi)"


def gpu_versions() -> dict[str, str]:
    """List what a GPU needs besides its driver, with versions, or with what is missing."""
    found = triton.missing() or triton.version()
    return {"CUDA": torch.version.cuda or "", "ROCm": torch.version.hip or "", "triton": found}


def synchronise(device: torch.device) -> None:
    """Wait until a device has finished all its work, before a clock is read."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


@dataclass(frozen=True)
class Machine:
    """The machine on which a number was measured.

    backend: the engine in use with its instruction set; commit: empty outside a git checkout.
    """

    cpu: str
    cores: int
    system: str
    python: str
    torch: str
    linfdist: str
    commit: str
    backend: str
    overrides: dict[str, str]


def describe_machine() -> Machine:
    """Describe this machine; raise RuntimeError that names an override that cannot be honoured here."""
    return Machine(
        cpu=cpu_model(),
        cores=usable_cores(),
        system=f"{platform.system()} {platform.machine()}",
        python=platform.python_version(),
        torch=torch.__version__,
        linfdist=__version__,
        commit=_commit(),
        backend=backend_in_use(),
        overrides=overrides(),
    )


def overrides() -> dict[str, str]:
    """Collect the environment variables in force that change what the engine runs on."""
    return {name: os.environ[name] for name in OVERRIDES if os.environ.get(name)}


def backend_in_use() -> str:
    """Name the backend that computes float32 on the CPU, with its detail: `native: avx2 (of avx2, scalar)`.

    Raises RuntimeError if an override asks for what cannot run here, as the engine itself does when it is used.
    """
    forced = os.environ.get("LINFDIST_BACKEND", "")
    statuses = backends()
    for status in statuses:
        if forced not in ("", status.name):
            continue
        if status.available:
            return f"{status.name}: {status.detail}"
        reasons = "; ".join(status.reasons)
        if forced or "LINFDIST_ISA" in reasons:  # then nothing else may run instead
            raise RuntimeError(reasons)
    raise RuntimeError(f"LINFDIST_BACKEND={forced} is not one of {', '.join(status.name for status in statuses)}")


def usable_cores() -> int:
    """Count the cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def load() -> float | None:
    """Count the cores that were busy during the last minute; None where the system does not tell."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else None


def cpu_model() -> str:
    """Name the CPU as the system does."""
    listing = Path("/proc/cpuinfo")
    if listing.exists():
        for line in listing.read_text().splitlines():
            key, _, value = line.partition(":")
            if key.strip() in ("model name", "Model") and value.strip():
                return value.strip()
    if platform.system() == "Darwin":
        name = _output("sysctl", "-n", "machdep.cpu.brand_string")
        if name:
            return name
    return platform.processor() or platform.machine()


def in_words(device: torch.device = CPU) -> str:
    """Name the processor as cards and rows state it: `AMD EPYC, 2 cores`, or the name of a GPU."""
    if device.type != "cpu":
        return device_name(device)
    cores = usable_cores()
    return f"{cpu_model()}, {cores} core{'s' if cores > 1 else ''}"


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


def from_launcher(variable: str, default: int) -> int:
    """Read a number that `torchrun` sets in the environment; raise ValueError if it is not a number."""
    text = os.environ.get(variable, str(default))
    if not re.fullmatch("[0-9]{1,9}", text):
        raise ValueError(f"{variable}={text[:40]!r}: must be a whole number, as torchrun sets it; unset it")
    return int(text)


def _local_rank() -> int:
    return from_launcher("LOCAL_RANK", 0)


def _processes_here() -> int:
    return from_launcher("LOCAL_WORLD_SIZE", 1)


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


def _commit() -> str:
    """Find the commit of the checkout that this package runs from, with `-dirty` if its sources differ."""
    package = Path(__file__).resolve().parents[1]
    root = _output("git", "-C", str(package), "rev-parse", "--show-toplevel")
    if not root or Path(root).resolve() / "src" / "linfdist" != package:  # installed: a checkout around it is another's
        return ""
    changed = _output("git", "-C", root, "status", "--porcelain", "--", "src", "csrc", "CMakeLists.txt")
    return _output("git", "-C", root, "rev-parse", "HEAD") + ("-dirty" if changed else "")


def _output(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
