"""`linfdist bench`: how fast the engine is on this machine."""

from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from linfdist import data
from linfdist.bench import Settings, run
from linfdist.bench import certify as bench_certify
from linfdist.bench import exact as bench_exact
from linfdist.bench import training as bench_training
from linfdist.bench.machine import backend_in_use, usable_cores
from linfdist.bench.results import check_writable
from linfdist.bench.table import terminal
from linfdist.models import DistNet

from .sources import open_source


def bench(
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="Write all the numbers to this JSON file.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Half a minute instead of three: fewer repetitions.")] = False,
    training: Annotated[
        bool, typer.Option("--training", help="Instead: where the time of a training step on MNIST goes.")
    ] = False,
    certify: Annotated[
        bool, typer.Option("--certify", help="Instead: what certificates and attacks cost, beside forward passes.")
    ] = False,
    exact: Annotated[
        Path | None,
        typer.Option("--exact", metavar="MODEL", help="Instead: what integers gain, on this model's test images."),
    ] = None,
    threads: Annotated[
        int | None, typer.Option(metavar="N", help="Number of threads.", show_default="2, or the number of cores if 1")
    ] = None,
) -> None:
    """Measure the engine against the matrix product, torch.cdist and torch.compile, interleaved in one run."""
    if training:
        torch.set_num_threads(_settings(quick, threads).threads)
        Console().print(bench_training.terminal(bench_training.measure()))
        return
    if certify:
        torch.set_num_threads(_settings(quick, threads).threads)
        costs = bench_certify.measure(turns=3 if quick else 7)
        Console().print(bench_certify.terminal(costs, None if quick else bench_certify.measure_large()))
        return
    if exact:
        torch.set_num_threads(_settings(quick, threads).threads)
        _exact(exact, turns=5 if quick else 15)
        return
    settings = _settings(quick, threads)
    if json:
        try:
            check_writable(json)
        except OSError as error:
            raise typer.BadParameter(f"cannot write {json}: {error}", param_hint="--json") from error
    try:
        backend_in_use()
    except RuntimeError as error:
        raise typer.BadParameter(f"no backend can run: {error}", param_hint="the environment") from error

    with Progress(
        TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), console=Console(stderr=True), transient=True
    ) as bar:
        task = bar.add_task("starting", total=1.0)
        report = run(settings, lambda label, fraction: bar.update(task, description=label, completed=fraction))
    if json:
        report.write(json)
    Console().print(terminal(report))
    if json:
        Console(stderr=True).print(f"wrote {json}", highlight=False, markup=False)


def _exact(path: Path, turns: int) -> None:
    try:
        source = open_source(path)
        if not isinstance(source.network, DistNet):
            raise TypeError(f"bench --exact races plain DistNets only, not {type(source.network).__name__}")
        name = source.data(None)
        gains = bench_exact.measure(source.network, data.load(name, split="test").images, turns)
    except (OSError, TypeError, ValueError, data.DataError) as error:
        raise typer.BadParameter(str(error), param_hint="--exact") from error
    Console().print(bench_exact.terminal(gains, f"{path.name}, {name} test"))


def _settings(quick: bool, threads: int | None) -> Settings:
    chosen = min(2, usable_cores()) if threads is None else threads
    try:
        return Settings.quick(chosen) if quick else Settings(threads=chosen)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--threads") from error
