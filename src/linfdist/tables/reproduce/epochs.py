"""How long an epoch takes (Table 4): a few steps are timed at points of the schedule, and extrapolated."""

import math
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from ... import data
from ...machine import CPU, synchronise
from ...recipes import Recipe
from ...training import Trainer
from ...training.distributed import Workers
from ...training.schedule import State, state_at

POINTS = 6  # of the p-ramp
STEPS = 3


@dataclass(frozen=True)
class EpochTimes:
    """The seconds per epoch for each p, which is written as text, and their mean over the recipe's epochs."""

    by_p: dict[str, float]
    mean: float


def epoch_times(
    recipe: Recipe, data_dir: Path | None = None, device: torch.device = CPU, steps: int = STEPS
) -> EpochTimes:
    """Time training steps with fresh weights, at e1's p, at the middle of each sixth of the p-ramp, and at p = inf.

    The time of a step depends on p, and a little on the weights: those of a trained network leave the engine somewhat
    more or less to skip.
    """
    train_set = data.load(recipe.data, data_dir=data_dir)
    trainer = Trainer(recipe, train_set, data.info(recipe.data), Workers(device=device))
    per_epoch = trainer.batches.steps_per_epoch
    by_p: dict[str, float] = {}
    total = 0.0
    for epoch, share in schedule_points(recipe):
        state = state_at(recipe, round(epoch * per_epoch), per_epoch)
        name = "inf" if math.isinf(state.p) else f"{state.p:.4g}"
        if name not in by_p:
            by_p[name] = per_epoch * _step_seconds(trainer, state, steps)
        total += share * by_p[name]
    return EpochTimes(by_p, total / recipe.epochs)


def schedule_points(recipe: Recipe) -> list[tuple[float, float]]:
    """Return pairs (epoch, how many epochs it stands for): the middle of e1, of each sixth of e2, and of e3."""
    ramp = [(recipe.e1 + recipe.e2 * (k + 0.5) / POINTS, recipe.e2 / POINTS) for k in range(POINTS)]
    points = [(recipe.e1 / 2, recipe.e1), *ramp, (recipe.e1 + recipe.e2 + recipe.e3 / 2, recipe.e3)]
    return [(epoch, share) for epoch, share in points if share > 0]


def _step_seconds(trainer: Trainer, state: State, steps: int) -> float:
    times = []
    for _ in range(steps + 1):
        start = time.perf_counter()
        trainer.step(state)
        synchronise(trainer.workers.device)
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])  # the first one warms up
