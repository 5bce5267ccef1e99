"""`linfdist info`: show what can run here."""

from importlib.metadata import version
from platform import machine as processor
from platform import python_version, system
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

import linfdist as ld
from linfdist.errors import cell, console

from .boundary import say

if TYPE_CHECKING:
    from linfdist.ops.machine import Gpu


def info(
    short: Annotated[bool, typer.Option("--short", help="Print only versions and system, on one line.")] = False,
) -> None:
    """Show the versions, the CPU, the GPUs, and every backend: whether it can run, and why not.

    Example: linfdist info
    """
    if short:
        system_name = f"{system()} {processor()}"
        say(f"linfdist {ld.__version__}, torch {version('torch')}, Python {python_version()}, {system_name}")
        return
    import torch  # it takes its time

    from linfdist.ops import machine
    from linfdist.ops.machine import OVERRIDES, in_words, overrides

    screen = console()
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="bold")
    facts.add_row("linfdist", ld.__version__)
    facts.add_row("torch", torch.__version__)
    facts.add_row("CPU", cell(in_words()))
    facts.add_row("threads", str(torch.get_num_threads()))
    for name, text in _gpus():
        facts.add_row(name, cell(text))
    for name, text in machine.gpu_versions().items():
        if text:
            facts.add_row(name, cell(text))
    facts.add_row("by default", cell(f"commands compute on {machine.device_label(machine.choose_device())}"))
    for name in OVERRIDES:
        value = overrides().get(name)
        facts.add_row(name, f"[yellow]{cell(value)}[/]" if value else "[dim]not set[/]")
    facts.add_row("in use", _in_use())
    screen.print(facts)

    table = Table()
    table.add_column("backend", style="bold")
    table.add_column("runs")
    table.add_column("")
    for status in ld.backends():
        detail = status.detail if status.available else "; ".join(status.reasons)
        table.add_row(status.name, "[green]yes[/]" if status.available else "[red]no[/]", cell(detail))
    screen.print(table)


def _gpus() -> list[tuple[str, str]]:
    """Describe every GPU and its backend, or what is missing; without a GPU, say why there is none."""
    from linfdist.ops import machine

    return [(str(gpu.device), _gpu(gpu)) for gpu in machine.gpus()] or [("GPU", f"none: {machine.why_none()}")]


def _gpu(gpu: "Gpu") -> str:
    from linfdist.certificates.checks import PROVED

    facts = [gpu.name, gpu.architecture, f"{gpu.memory / 2**30:.1f} GiB" if gpu.memory else ""]
    slow = f"only the slow reference backend ({'; '.join(gpu.missing)})"
    proofs = "" if gpu.device.type in PROVED else "; certificates need float64: certify on the CPU (--device cpu)"
    return f"{', '.join(filter(None, facts))}: {gpu.backend or slow}{proofs}"


def _in_use() -> str:
    from linfdist.ops.machine import backend_in_use

    try:
        return cell(backend_in_use())
    except RuntimeError as error:
        return f"[red]none: {cell(str(error))}[/]"
