"""How long an epoch takes, before anything is planned."""

import time
from collections.abc import Mapping
from typing import Any

from .contenders import Contender, Lesson

SHARE = 0.01  # of the budget: probes are doubled until one takes that long
REHEARSAL = 1 / 24  # in place of SHARE where no trial follows: a step may get slower while a network learns
FIRST_STEPS = 4
CAREFUL = 0.95  # plans fill so much of their time: an epoch may take longer than its probe


def seconds_per_epoch(contender: Contender, lesson: Lesson, setting: Mapping[str, Any], long: float) -> float:
    """Time short trainings, of 4, 8, 16, ... steps: each goes through the whole schedule, as the real one will.

    long: the seconds that the last of them takes at least, unless that is a whole epoch. What a training costs however
    short it is drops out of the difference between the last two.
    """
    per_epoch = contender.steps_per_epoch(lesson, setting)
    steps, before = FIRST_STEPS, None
    while True:
        start = time.perf_counter()
        contender.train(lesson, setting, steps / per_epoch)
        took = time.perf_counter() - start
        if before is not None and (took >= long or steps >= per_epoch):
            gained = (took - before) / (steps / 2)
            return per_epoch * max(gained, took / steps / 2)  # a hiccup of the machine must not promise too much
        steps, before = 2 * steps, took


def epochs_within(seconds: float, epoch: float, steps_per_epoch: int) -> float:
    """How many epochs to plan, in whole steps; at least one step."""
    return max(1, int(CAREFUL * seconds / epoch * steps_per_epoch)) / steps_per_epoch
