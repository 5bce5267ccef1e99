"""Where the time of a training step goes: `linfdist bench --training`."""

import math
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from rich.console import RenderableType
from rich.table import Table

from linfdist import data, recipes
from linfdist.ops.backends import native
from linfdist.training.batches import Batches
from linfdist.training.distributed import Workers
from linfdist.training.objective import Objective, build_network
from linfdist.training.optim import DistAdam
from linfdist.training.schedule import state_at

KERNELS = ("inf_dist", "inf_dist_argmax", "inf_dist_backward", "p_dist", "p_dist_backward")
RECIPE, SETTINGS = "mnist", ("width=1024", "batch_size=512")
TARGETS = {8.0: 15.0, math.inf: 30.0}  # percent outside the kernels, at most


@dataclass(frozen=True)
class Split:
    """Medians over the steps, in seconds."""

    p: float
    step: float
    kernels: float
    data: float
    optimiser: float
    outside: float  # percent of the step that is not spent in dist kernels


def measure(steps: int = 12) -> list[Split]:
    """Training steps of the paper's MNIST network at width 1024, on this machine's threads."""
    recipe = recipes.override(recipes.load(RECIPE), SETTINGS)
    images = data.load(recipe.data, split="train")
    batches = Batches(images.images, images.labels, recipe, Workers(0, 1, torch.device("cpu")))
    torch.manual_seed(recipe.seed)
    objective = Objective(recipe, build_network(recipe, data.info(recipe.data))).train()
    optimiser = DistAdam(
        objective.named_parameters(), objective.dist_weights(), {}, recipe.beta1, recipe.beta2, recipe.adam_eps,
        recipe.weight_decay,
    )  # fmt: skip
    state = state_at(recipe, 0, batches.steps_per_epoch)
    return [_split(batches, objective, optimiser, replace(state, p=p), steps) for p in TARGETS]


def _split(batches: Batches, objective: Objective, optimiser: DistAdam, state: Any, steps: int) -> Split:
    rows = []
    with _timed_kernels() as spent:
        for step in range(steps + 2):
            spent.clear()
            start = time.perf_counter()
            x, y = batches.at(step)
            loaded = time.perf_counter()
            loss, _ = objective(x, y, state)
            optimiser.zero_grad()
            loss.backward()
            ready = time.perf_counter()
            optimiser.step(state.lr, state.p)
            end = time.perf_counter()
            if step >= 2:  # the first ones warm up
                rows.append((end - start, sum(spent), loaded - start, end - ready))
    step_time, kernels, loading, updating = (statistics.median(column) for column in zip(*rows, strict=True))
    outside = 100 * statistics.median(1 - row[1] / row[0] for row in rows)
    return Split(state.p, step_time, kernels, loading, updating, outside)


@contextmanager
def _timed_kernels() -> Iterator[list[float]]:
    """Collects the seconds of every call into the native backend."""
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
    """The split as a table."""
    table = Table(title=f"a training step: {RECIPE}, {', '.join(SETTINGS)}, {torch.get_num_threads()} threads")
    for heading in ("p", "step", "dist kernels", "data + augmentation", "optimiser", "outside the kernels", "at most"):
        table.add_column(heading, justify="right")
    for split in splits:
        times = (f"{1e3 * value:.1f} ms" for value in (split.step, split.kernels, split.data, split.optimiser))
        table.add_row(f"{split.p:g}", *times, f"{split.outside:.1f} %", f"{TARGETS[split.p]:g} %")
    return table
