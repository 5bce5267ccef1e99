"""`linfdist info`: show what can run here."""

import torch
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import linfdist as ld
from linfdist.machine import OVERRIDES, backend_in_use, in_words, overrides


def info() -> None:
    """Show the versions, the CPU, and every backend: whether it can run, and why not.

    Example: linfdist info
    """
    console = Console()
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="bold")
    facts.add_row("linfdist", ld.__version__)
    facts.add_row("torch", torch.__version__)
    facts.add_row("CPU", escape(in_words()))
    facts.add_row("GPU", escape(_gpu()))
    facts.add_row("threads", str(torch.get_num_threads()))
    for name in OVERRIDES:
        value = overrides().get(name)
        facts.add_row(name, f"[yellow]{escape(value)}[/]" if value else "[dim]not set[/]")
    facts.add_row("in use", _in_use())
    console.print(facts)

    table = Table()
    table.add_column("backend", style="bold")
    table.add_column("runs")
    table.add_column("")
    for status in ld.backends():
        detail = status.detail if status.available else "; ".join(status.reasons)
        table.add_row(status.name, "[green]yes[/]" if status.available else "[red]no[/]", escape(detail))
    console.print(table)


def _gpu() -> str:
    """Say what a GPU would be used for: there are no kernels for it yet."""
    if not torch.cuda.is_available():
        return "none that torch can use"
    names = ", ".join(torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count()))
    return f"{names}; training uses it through the reference backend, which may be slower than the CPU's kernels"


def _in_use() -> str:
    try:
        return escape(backend_in_use())
    except RuntimeError as error:
        return f"[red]none: {escape(str(error))}[/]"
