"""The rules of a comparison, the same for every contender: images, time, trials, seed."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Set
from dataclasses import dataclass
from functools import cache

from ... import recipes
from ...data import NAMES
from ...errors import closest
from ...files import excerpt

OURS = "dist"  # the method of this package's own networks
TUNED = (OURS, "ibp", "sabr", "mtl-ibp")  # methods that are searched unless others are named
TUNED_TRIALS = 8
TRIALS = 3
TRIALS_SHARE = 0.25  # of the budget, for all trials together; none if there is only one setting
HELD_OUT = 1000  # training images that choices are made on,
EVERY = 7  # but at most every seventh
SHORTEST_TRIAL = 0.1  # epochs
AUGMENTATION = ("pad", "pad_mode", "flip")
SHARED = frozenset({"data", "eps", *AUGMENTATION})  # keys of the recipe that every contender takes
_LONGEST = 1000 * 3600
_MOST_TRIALS = 10_000


@cache
def data_sets() -> tuple[str, ...]:
    """Name the data sets whose quick recipe says what contenders share. A crop is not passed on to them."""
    quick = {name: f"{name}-quick" for name in NAMES}
    shipped = recipes.names()
    return tuple(name for name, recipe in quick.items() if recipe in shipped and recipes.load(recipe).crop is None)


def quick_recipe(data: str) -> recipes.Recipe:
    """Return the quick recipe of a data set; ValueError if contenders cannot share one."""
    known = data_sets()
    if data not in known:
        raise ValueError(f"data = {data!r}: must be one of {', '.join(known)}{closest(data, known)}")
    return recipes.load(f"{data}-quick")


@dataclass(frozen=True)
class Rules:
    """What every contender gets in a comparison.

    budget: seconds of training, the trials' share included; trials: how many settings each one tries; limit: only the
    first test images.
    """

    data: str
    budget: float
    trials: int = TRIALS
    seed: int = 0
    limit: int | None = None

    def __post_init__(self) -> None:
        _ = self.recipe
        check_numbers(self.budget, self.trials, self.seed)
        if self.limit is not None and self.limit < 1:
            raise ValueError(f"limit = {self.limit}: must be at least 1 image")

    @property
    def recipe(self) -> recipes.Recipe:
        """The recipe whose ε and augmentation all of them take: the quick one of the data set."""
        return quick_recipe(self.data)

    @property
    def name(self) -> str:
        """Name what all trainings depend on; their folder has the same name."""
        return f"{self.data}-{time_text(self.budget)}-trials{self.trials}-seed{self.seed}-{self.shared}"

    @property
    def shared(self) -> str:
        """A checksum of what all contenders take from the recipe."""
        return checksum(self.recipe, SHARED)

    @property
    def trial_seconds(self) -> float:
        """How long one trial may train."""
        return self.budget * TRIALS_SHARE / self.trials if self.trials > 1 else 0.0

    @property
    def training_seconds(self) -> float:
        """How long the training with the chosen setting may take."""
        return self.budget - self.trials * self.trial_seconds

    def needed(self, epoch: float) -> float:
        """Return the smallest budget with time for an epoch of this many seconds, and for long enough trials."""
        if self.trials == 1:
            return epoch
        return epoch * max(1 / (1 - TRIALS_SHARE), SHORTEST_TRIAL * self.trials / TRIALS_SHARE)


def check_numbers(budget: float, trials: int, seed: int) -> None:
    """Raise ValueError for an invalid budget, number of trials or seed."""
    if not 0 < budget <= _LONGEST:
        raise ValueError(f"budget = {budget!r}: must be more than 0 and at most {time_text(_LONGEST)}")
    if not 1 <= trials <= _MOST_TRIALS:
        raise ValueError(f"trials = {excerpt(trials)}: must be between 1 and {_MOST_TRIALS:,}")
    if not 0 <= seed < 2**63:
        raise ValueError(f"seed = {seed}: must be between 0 and 2**63 - 1")


def checksum(recipe: recipes.Recipe, keys: Set[str] | None = None) -> str:
    """Return a checksum of a recipe, or of some of its keys; new keys at their defaults change nothing."""
    text = recipe.resolved().model_dump_json(include=None if keys is None else set(keys), exclude_defaults=True)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def parse_budget(text: str) -> float:
    """Parse a time such as 90s, 20m, 1.5h or 1h30m into seconds; ValueError says what is allowed."""
    number = r"\s*([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*"
    match = re.fullmatch(rf"(?:{number}h)?(?:{number}m)?(?:{number}s)?\s*", text)
    parts = zip(match.groups(), (3600, 60, 1), strict=True) if match else ()
    seconds = sum(float(part) * size for part, size in parts if part)
    seconds = round(seconds, 6)  # so that 1.1h and 66m are the same
    if not 0 < seconds <= _LONGEST:
        raise ValueError(
            f"budget = {text[:60]!r}: must be a time such as 90s, 20m, 1.5h or 1h30m, more than 0 and at most "
            f"{time_text(_LONGEST)}"
        )
    return seconds


def time_text(seconds: float) -> str:
    """Write a time as `parse_budget` reads it: 90s, 20m, 1.5h."""
    for unit, size in (("h", 3600), ("m", 60)):
        if seconds >= size and f"{seconds / size:.4g}" == f"{seconds / size:.12g}":
            return f"{seconds / size:.4g}{unit}"
    return f"{seconds:.12g}s"


def rounded_up_time(seconds: float) -> str:
    """Round a time up to whole seconds, minutes or hours, as text."""
    unit, size = ("h", 3600) if seconds > 3 * 3600 else ("m", 60) if seconds > 3 * 60 else ("s", 1)
    return f"{math.ceil(seconds / size)}{unit}"
