"""`linfdist bench`: measure how fast the engine is on this machine."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from linfdist.errors import console
from linfdist.files import output

from .boundary import checking, say
from .options import chosen_device

if TYPE_CHECKING:
    import torch


def bench(
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="Write all the numbers to this JSON file.")] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Take half a minute instead of three, with fewer repetitions.")
    ] = False,
    device: Annotated[
        str,
        typer.Option(
            "--device",
            metavar="cpu|cuda[:K]|auto",
            help="cuda: time training steps of the paper's CIFAR-10 network on a GPU.",
        ),
    ] = "cpu",
    threads: Annotated[
        int | None, typer.Option(metavar="N", help="Number of threads.", show_default="2, or the number of cores if 1")
    ] = None,
) -> None:
    """Measure the engine against the matrix product, torch.cdist and torch.compile, interleaved in one run.

    On a GPU, measure training steps of the paper's CIFAR-10 network beside published times.

    Example: linfdist bench --quick --json speed.json
    """
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from linfdist.experiments.bench import BenchSettings, run
    from linfdist.experiments.bench.report import terminal
    from linfdist.ops.machine import CPU, backend_in_use, usable_cores

    where = CPU if device == "cpu" else chosen_device(device)
    with checking("--threads"):
        chosen = min(2, usable_cores()) if threads is None else threads
        settings = BenchSettings.quick(chosen) if quick else BenchSettings(threads=chosen)
    if json:
        with checking("--json"):
            json = output(json)
    if where.type != "cpu":
        _on_gpu(where, json, quick)
        return
    backend_in_use()  # else every race fails
    with Progress(
        TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), console=console(stderr=True), transient=True
    ) as bar:
        task = bar.add_task("starting", total=1.0)
        report = run(settings, lambda label, fraction: bar.update(task, description=label, completed=fraction))
    if json:
        report.write(json)
    console().print(terminal(report))
    if json:
        say(f"wrote {json}", error=True)


def _on_gpu(device: "torch.device", json: Path | None, quick: bool) -> None:
    from linfdist.experiments.bench import device as bench_device

    report = bench_device.measure(device, turns=5 if quick else 20)
    console().print(bench_device.terminal(report))
    if json:
        report.write(json)
        say(f"wrote {json}", error=True)
