"""How much memory something takes: the most that this process held, where the system tells."""

from pathlib import Path

_RESET, _STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")


def reset_peak() -> bool:
    """Begin anew to watch how much this process holds; False where the system (all but Linux) cannot."""
    try:
        _RESET.write_text("5")
    except OSError:
        return False
    return True


def peak_mb() -> float | None:
    """The most megabytes that this process held since `reset_peak`; None where the system does not tell."""
    try:
        lines = _STATUS.read_text().splitlines()
    except OSError:
        return None
    peak = next((line.split()[1] for line in lines if line.startswith("VmHWM:")), None)
    return None if peak is None else round(int(peak) * 1024 / 1e6, 1)
