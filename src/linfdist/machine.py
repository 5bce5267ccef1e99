"""The machine that a number was measured on: its processor, its versions, the backend in use."""

import os
import platform
import subprocess
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from . import devices
from .ops.select import backends

OVERRIDES = ("LINFDIST_BACKEND", "LINFDIST_ISA")


@dataclass(frozen=True)
class Machine:
    """What a number was measured on.

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
    """Describe this machine; RuntimeError says which override cannot be honoured here."""
    return Machine(
        cpu=cpu_model(),
        cores=usable_cores(),
        system=f"{platform.system()} {platform.machine()}",
        python=platform.python_version(),
        torch=torch.__version__,
        linfdist=_version(),
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


def in_words(device: torch.device = devices.CPU) -> str:
    """Name what computes, as cards and rows state it: `AMD EPYC, 2 cores`, or the name of a GPU."""
    if device.type != "cpu":
        return devices.name_of(device)
    cores = usable_cores()
    return f"{cpu_model()}, {cores} core{'s' if cores > 1 else ''}"


def _version() -> str:
    try:
        return version("linfdist")
    except PackageNotFoundError:  # a source tree that was never installed
        return "0+unknown"


def _commit() -> str:
    """Find the commit of the checkout that this package runs from, with `-dirty` if its sources differ."""
    package = Path(__file__).resolve().parent
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
