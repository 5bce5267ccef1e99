"""What comparisons and searches share: held-out images, trainings that end in time, and what networks reach."""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch

from ...attacks import attack
from ...data import Dataset
from ...data.base import spread_out
from ...evaluation import BATCH, Violated, summarise, violations
from ...evaluation.batch import Certifiers, evaluate_batch
from ...evaluation.progress import busy
from ...models import PixelNet
from .contenders import AfterEpoch, Contender, Task
from .rules import EVERY, HELD_OUT

SHARE = 0.01  # of the budget: probes are doubled until one takes that long
REHEARSAL = 1 / 24  # in place of SHARE where no trial follows: a step may get slower while a network learns
FIRST_STEPS = 4
CAREFUL = 0.95  # plans fill so much of their time: an epoch may take longer than its probe
ATTEMPTS = 3  # at a training that ends in time: long ones may be slower than short ones, as distances get dearer
LATE = 1.1  # times what a training may take


def without_held_out(task: Task) -> tuple[Task, Dataset]:
    """Split a task's images into those of trials and those that choices are made on, spread over all."""
    count = len(task.dataset)
    if count < EVERY:
        raise ValueError(f"{count} training images: some are held out, which takes at least {EVERY}")
    out = torch.zeros(count, dtype=torch.bool)
    out[spread_out(min(HELD_OUT, count // EVERY), count)] = True
    return replace(task, dataset=subset(task.dataset, ~out)), subset(task.dataset, out)


def subset(dataset: Dataset, which: torch.Tensor) -> Dataset:
    return Dataset(dataset.name, dataset.images[which], dataset.labels[which], dataset.classes)


def seconds_per_epoch(contender: Contender, task: Task, setting: Mapping[str, Any], long: float) -> float:
    """Time short trainings, of 4, 8, 16, ... steps: each goes through the whole schedule, as the real one will.

    long: the seconds that the last of them takes at least, unless that is a whole epoch. The difference between the
    last two times leaves out what every training costs once, however short it is.
    """
    per_epoch = contender.steps_per_epoch(task, setting)
    steps, before = FIRST_STEPS, None
    while True:
        start = time.perf_counter()
        contender.train(task, setting, steps / per_epoch)
        took = time.perf_counter() - start
        if before is not None and (took >= long or steps >= per_epoch):
            gained = (took - before) / (steps / 2)
            return per_epoch * max(gained, took / steps / 2)  # a hiccup of the machine must not promise too much
        steps, before = 2 * steps, took


def epochs_within(seconds: float, epoch: float, steps_per_epoch: int) -> float:
    """How many epochs to plan, in whole steps; at least one step."""
    return max(1, int(CAREFUL * seconds / epoch * steps_per_epoch)) / steps_per_epoch


def train_within(
    seconds: float,
    per_epoch: float,
    contender: Contender,
    task: Task,
    setting: Mapping[str, Any],
    what: str,
    tell: Callable[[str], None],
    show: bool,
) -> tuple[PixelNet, float, float]:
    """Train for as many epochs as fit, and again with fewer if that takes too long; return how many, and the time."""
    for attempts_left in reversed(range(ATTEMPTS)):
        epochs = epochs_within(seconds, per_epoch, contender.steps_per_epoch(task, setting))
        start = time.perf_counter()
        with busy(f"{contender.title}: {what}, {epochs:.3g} epochs in {seconds:.3g} s", show) as add:
            network = contender.train(task, setting, epochs, told_to(add))
        took = time.perf_counter() - start
        if took <= LATE * seconds or not attempts_left:
            break
        per_epoch = took / epochs
        tell(f"  {epochs:.3g} epochs took {took:.1f} s, longer than the others have: again, with fewer")
    return network, epochs, took


def measure(network: PixelNet, held: Dataset, eps: str, method: str) -> dict[str, float]:
    """Measure percentages of the held-out images; raise `Violated` if proofs and PGD contradict each other.

    Costly proofs run after PGD, on the images that it has not broken.
    """
    rows, certifiers = [], Certifiers(network)
    for start in range(0, len(held), BATCH):
        few = slice(start, start + BATCH)
        rows += evaluate_batch(
            certifiers, held.images[few], held.labels[few], start, eps, method, [attack("pgd")], radii=False, spare=True
        ).rows
    if found := violations(rows, eps):
        raise Violated(found, [])
    summary = summarise(rows, eps, ["pgd"])
    return {"clean": summary["clean"], "pgd20": summary["attacks"]["pgd"], "certified": summary["certified"]}


def told_to(add: Callable[[str], None]) -> AfterEpoch:
    return lambda epoch, accuracy: add(f"after {epoch:.3g}, {accuracy:.1f} % of training images right")


def percentages(measured: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.2f}" for name, value in measured.items())
