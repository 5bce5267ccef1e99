"""How long an epoch takes: a few steps at points of the schedule, extrapolated (Table 4)."""

import math
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from .. import data
from ..recipes import Recipe
from ..training.batches import Batches
from ..training.distributed import Workers
from ..training.objective import Objective, build_network
from ..training.optim import DistAdam
from ..training.schedule import State, state_at

POINTS = 6  # of the p-ramp
STEPS = 3


@dataclass(frozen=True)
class EpochTimes:
    """Seconds an epoch by p, as text, and their mean over the recipe's epochs."""

    by_p: dict[str, float]
    mean: float


def epoch_times(recipe: Recipe, data_dir: Path | None = None, steps: int = STEPS) -> EpochTimes:
    """Time training steps with fresh weights, at e1's p, at the middle of each sixth of the p-ramp, and at p = inf.

    The time of a step depends on p, and a little on the weights: those of a trained network leave the engine somewhat
    more or less to skip.
    """
    images = data.load(recipe.data, split="train", data_dir=data_dir)
    batches = Batches(images.images, images.labels, recipe, Workers(0, 1, torch.device("cpu")))
    torch.manual_seed(recipe.seed)
    objective = Objective(recipe, build_network(recipe, data.info(recipe.data))).train()
    optimiser = DistAdam(
        objective.named_parameters(),
        lp=objective.dist_weights() if recipe.decay == "lp" else set(),
        lr_factors={},
        beta1=recipe.beta1,
        beta2=recipe.beta2,
        eps=recipe.adam_eps,
        weight_decay=0.0 if recipe.decay == "none" else recipe.weight_decay,
    )
    by_p: dict[str, float] = {}
    total = 0.0
    for epoch, share in schedule_points(recipe):
        state = state_at(recipe, round(epoch * batches.steps_per_epoch), batches.steps_per_epoch)
        name = "inf" if math.isinf(state.p) else f"{state.p:.4g}"
        if name not in by_p:
            by_p[name] = batches.steps_per_epoch * _step_seconds(batches, objective, optimiser, state, steps)
        total += share * by_p[name]
    return EpochTimes(by_p, total / recipe.epochs)


def schedule_points(recipe: Recipe) -> list[tuple[float, float]]:
    """(epoch, how many epochs it stands for): the middle of e1, of each sixth of e2, and of e3."""
    ramp = [(recipe.e1 + recipe.e2 * (k + 0.5) / POINTS, recipe.e2 / POINTS) for k in range(POINTS)]
    points = [(recipe.e1 / 2, recipe.e1), *ramp, (recipe.e1 + recipe.e2 + recipe.e3 / 2, recipe.e3)]
    return [(epoch, share) for epoch, share in points if share > 0]


def _step_seconds(batches: Batches, objective: Objective, optimiser: DistAdam, state: State, steps: int) -> float:
    times = []
    for step in range(steps + 1):
        start = time.perf_counter()
        x, y = batches.at(step)
        loss, _ = objective(x, y, state)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step(state.lr, state.p)
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])  # the first one warms up
