"""`linfdist bench`: measure how fast the engine is on this machine."""

from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from linfdist import data, recipes
from linfdist.bench import BenchSettings, run
from linfdist.bench import certify as bench_certify
from linfdist.bench import device as bench_device
from linfdist.bench import exact as bench_exact
from linfdist.bench import time_to as bench_time_to
from linfdist.bench import training as bench_training
from linfdist.bench.table import terminal
from linfdist.evaluate import watch
from linfdist.files import check_writable
from linfdist.machine import CPU, backend_in_use, usable_cores
from linfdist.runs.folder import METRICS

from .boundary import checking, say
from .model import open_model
from .options import chosen_device


def bench(
    what: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RUN|RECIPE]...",
            help="With --time-to: folders of runs to read, or recipes to train.",
            show_default="mnist-quick",
        ),
    ] = None,
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
        typer.Option("--exact", metavar="MODEL", help="Instead: what integers gain, on this network's test images."),
    ] = None,
    device: Annotated[
        str,
        typer.Option(
            "--device", metavar="cpu|cuda[:K]|auto", help="On a GPU: training steps of the paper's CIFAR-10 network."
        ),
    ] = "cpu",
    time_to: Annotated[
        float | None,
        typer.Option(
            "--time-to",
            metavar="PERCENT",
            help="Instead: how long trainings take until so many held-out images are certified.",
        ),
    ] = None,
    threads: Annotated[
        int | None, typer.Option(metavar="N", help="Number of threads.", show_default="2, or the number of cores if 1")
    ] = None,
) -> None:
    """Measure the engine against the matrix product, torch.cdist and torch.compile, interleaved in one run.

    On a GPU, measure training steps of the paper's CIFAR-10 network beside published times.

    Example: linfdist bench --quick --json speed.json
    """
    others = {"--training": training, "--certify": certify, "--exact": exact, "--time-to": time_to is not None}
    instead = [option for option, given in others.items() if given]
    if len(instead) > 1:
        raise typer.BadParameter("give one of them: each replaces the others", param_hint=", ".join(instead))
    if instead and json:
        raise typer.BadParameter(f"{instead[0]} prints a table and writes no file", param_hint="--json")
    if what and time_to is None:
        raise typer.BadParameter("runs and recipes are for --time-to PERCENT only", param_hint="[RUN|RECIPE]...")
    where = CPU if device == "cpu" else chosen_device(device)
    if where.type != "cpu":
        if instead:
            raise typer.BadParameter(f"{instead[0]} measures the CPU: leave --device out", param_hint="--device")
        _on_gpu(where, json, quick)
        return
    with checking("--threads"):
        chosen = min(2, usable_cores()) if threads is None else threads
        settings = BenchSettings.quick(chosen) if quick else BenchSettings(threads=chosen)
    if time_to is not None:
        torch.set_num_threads(settings.threads)
        with checking("--time-to"):
            level = bench_time_to.check_level(time_to)
        Console().print(bench_time_to.terminal([_course(each, level) for each in what or ["mnist-quick"]], level))
        return
    if training or certify or exact:
        torch.set_num_threads(settings.threads)
        Console().print(_other(training, certify, exact, quick))
        return
    if json:
        with checking("--json"):
            check_writable(json)
    backend_in_use()  # else every race fails
    with Progress(
        TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), console=Console(stderr=True), transient=True
    ) as bar:
        task = bar.add_task("starting", total=1.0)
        report = run(settings, lambda label, fraction: bar.update(task, description=label, completed=fraction))
    if json:
        report.write(json)
    Console().print(terminal(report))
    if json:
        say(f"wrote {json}", error=True)


def _on_gpu(device: torch.device, json: Path | None, quick: bool) -> None:
    if json:
        with checking("--json"):
            check_writable(json)
    report = bench_device.measure(device, turns=5 if quick else 20)
    Console().print(bench_device.terminal(report))
    if json:
        report.write(json)
        say(f"wrote {json}", error=True)


def _course(what: str, level: float) -> bench_time_to.Course:
    """The course of a run that is there, or of a recipe that is trained now."""
    if (Path(what) / METRICS).is_file():
        return bench_time_to.of_run(Path(what))
    if Path(what).is_dir() and what not in recipes.names():
        raise typer.BadParameter(
            f"{what} is no run: it has no {METRICS}; give the folder of a run of `linfdist train`, or a recipe",
            param_hint="[RUN|RECIPE]...",
        )
    with checking("[RUN|RECIPE]..."):
        recipe = recipes.load(what)
    return bench_time_to.by_training(
        recipe,
        level,
        watch(recipe),
        lambda point: say(
            f"{recipe.name}: epoch {point.epoch:g}, {point.minutes:.1f} minutes, {point.certified:.2f} % certified",
            error=True,
        ),
    )


def _other(training: bool, certify: bool, exact: Path | None, quick: bool) -> RenderableType:
    """Run the benchmark of one of the options that begin with `Instead`."""
    if training:
        return bench_training.terminal(bench_training.measure())
    if certify:
        costs = bench_certify.measure(turns=3 if quick else 7)
        return bench_certify.terminal(costs, None if quick else bench_certify.measure_large())
    assert exact is not None
    with checking("--exact"):
        model = open_model(exact)
        name = model.data(None)
    network: Any = model.network  # of which kind, `freeze` checks
    gains = bench_exact.measure(network, data.load(name, split="test").images, turns=5 if quick else 15)
    return bench_exact.terminal(gains, f"{exact.name}, {name} test")
