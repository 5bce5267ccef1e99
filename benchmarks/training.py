"""Where the time of a training step goes, and what one on boxes costs: `python -m benchmarks.training`."""

import math
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import torch
from rich.console import Console, RenderableType
from rich.table import Table

from linfdist import data, recipes
from linfdist.models.loading import load_floats
from linfdist.ops import operators
from linfdist.ops.backends import native
from linfdist.training import Trainer
from linfdist.training.schedule import State

from . import Ratio, cost, parse, parser, seconds_by_turn

KERNELS = ("inf_dist", "inf_dist_argmax", "inf_dist_backward", "p_dist", "p_dist_backward")
RECIPE, SETTINGS = "mnist", ("width=1024", "batch_size=512")
TARGETS = {8.0: 15.0, math.inf: 30.0}  # percent outside the kernels, at most

BOX_RECIPE, NETWORKS = "mnist-quick", ("mnist-0.3", "mnist-0.3-box")
BOX, BY_PARTS, PLAIN = "a step on boxes", "a step on boxes, its gradients bound by bound", "a step at p = ∞"
BOX_TARGET = 1.6  # times a step at p = inf, at most


@dataclass(frozen=True)
class Split:
    """The medians over the steps, in seconds."""

    p: float
    step: float
    kernels: float
    data: float
    optimiser: float
    outside: float  # percent of the step that is not spent in dist kernels


def measure(steps: int = 12) -> list[Split]:
    """Time training steps of the paper's MNIST network at width 1024, on this machine's threads."""
    recipe = recipes.override(recipes.load(RECIPE), SETTINGS)
    trainer = Trainer(recipe, data.load(recipe.data), data.info(recipe.data))
    return [_split(trainer, replace(trainer.state, p=p), steps) for p in TARGETS]


def _split(trainer: Trainer, state: State, steps: int) -> Split:
    rows = []
    with _timed_kernels() as spent:
        for step in range(steps + 2):
            spent.clear()
            start = time.perf_counter()
            x, y = trainer.batches.at(step)
            loaded = time.perf_counter()
            trainer.differentiate(x, y, state)
            ready = time.perf_counter()
            trainer.update(state)
            end = time.perf_counter()
            if step >= 2:  # the first ones warm up
                rows.append((end - start, sum(spent), loaded - start, end - ready))
    step_time, kernels, loading, updating = (statistics.median(column) for column in zip(*rows, strict=True))
    outside = 100 * statistics.median(1 - row[1] / row[0] for row in rows)
    return Split(state.p, step_time, kernels, loading, updating, outside)


def measure_boxes(name: str, turns: int = 16) -> list[Ratio]:
    """Time whole steps of e4, and of e3, on a network of the zoo that keeps its weights.

    Processor time of all threads: other programs disturb it less.
    """
    recipe = recipes.override(recipes.load(BOX_RECIPE), ["box_clip=none"])
    trainer = Trainer(recipe, data.load(recipe.data), data.info(recipe.data), network=load_floats(name))
    state = replace(trainer.state, p=math.inf, lr=0.0)

    def by_parts() -> None:
        with patch.object(operators, "native_for", lambda *_: None):
            trainer.step(replace(state, boxes=True))

    runs = {
        BOX: lambda: trainer.step(replace(state, boxes=True)),
        BY_PARTS: by_parts,
        PLAIN: lambda: trainer.step(state),
    }
    seconds = seconds_by_turn(runs, turns, time.process_time)
    return [
        cost(seconds, PLAIN, PLAIN, None),
        cost(seconds, BY_PARTS, PLAIN, None),
        cost(seconds, BOX, PLAIN, BOX_TARGET),
    ]


@contextmanager
def _timed_kernels() -> Iterator[list[float]]:
    """Collect the seconds of every call into the native backend."""
    spent: list[float] = []
    originals = {name: getattr(native, name) for name in KERNELS}

    def timed(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            start = time.perf_counter()
            result = function(*args)
            spent.append(time.perf_counter() - start)
            return result

        return call

    for name, function in originals.items():
        setattr(native, name, timed(function))
    try:
        yield spent
    finally:
        for name, function in originals.items():
            setattr(native, name, function)


def terminal(splits: list[Split]) -> RenderableType:
    """Return the split as a table."""
    table = Table(title=f"a training step: {RECIPE}, {', '.join(SETTINGS)}, {torch.get_num_threads()} threads")
    for heading in ("p", "step", "dist kernels", "data + augmentation", "optimiser", "outside the kernels", "at most"):
        table.add_column(heading, justify="right")
    for split in splits:
        times = (f"{1e3 * value:.1f} ms" for value in (split.step, split.kernels, split.data, split.optimiser))
        table.add_row(f"{split.p:g}", *times, f"{split.outside:.1f} %", f"{TARGETS[split.p]:g} %")
    return table


def terminal_boxes(name: str, costs: list[Ratio]) -> RenderableType:
    """Return the costs as a table."""
    network = load_floats(name).config
    table = Table(title=f"{name}, width {network['width']}, {BOX_RECIPE}, {torch.get_num_threads()} threads")
    for heading in ("what", "processor time", "times a step at p = ∞", "at most"):
        table.add_column(heading, justify="left" if heading == "what" else "right")
    for each in costs:
        target = "" if each.target is None else f"{each.target:g}"
        table.add_row(each.what, f"{each.milliseconds:.1f} ms", f"{each.ratio:.2f}", target)
    return table


if __name__ == "__main__":
    given = parse(parser(__doc__))
    console = Console()
    console.print(terminal(measure(steps=4 if given.quick else 12)))
    for each in NETWORKS:
        console.print(terminal_boxes(each, measure_boxes(each, turns=4 if given.quick else 16)))
