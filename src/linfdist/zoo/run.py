"""The machine that a network was trained on."""

from ..bench.machine import cpu_model, usable_cores


def machine() -> str:
    """This machine, in a few words."""
    cores = usable_cores()
    return f"{cpu_model()}, {cores} core{'s' if cores > 1 else ''}"
