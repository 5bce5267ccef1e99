"""Where the time of a training step goes: `python -m benchmarks.training`."""

import math
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from rich.console import Console, RenderableType
from rich.table import Table

from linfdist import data, recipes
from linfdist.ops.backends import native
from linfdist.training import Trainer
from linfdist.training.schedule import State

from . import parse, parser

KERNELS = ("inf_dist", "inf_dist_argmax", "inf_dist_backward", "p_dist", "p_dist_backward")
RECIPE, SETTINGS = "mnist", ("width=1024", "batch_size=512")
TARGETS = {8.0: 15.0, math.inf: 30.0}  # percent outside the kernels, at most


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


if __name__ == "__main__":
    given = parse(parser(__doc__))
    Console().print(terminal(measure(steps=4 if given.quick else 12)))
