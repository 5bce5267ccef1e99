"""Fair races: contenders take turns on the same fresh inputs, and ratios are formed within a turn."""

import gc
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Inputs:
    x: Tensor
    w: Tensor
    g: Tensor  # the gradient that arrives at the output


@dataclass(frozen=True)
class Contender:
    """`prepare` is not timed, `run` is; `elements` counts the terms |x_i - w_i|, or the products, it works through."""

    prepare: Callable[[Inputs], tuple[Tensor, ...]]
    run: Callable[..., Any]
    elements: int
    threads: int


class Race:
    """Every repetition draws fresh inputs and runs each contender once; another one starts each time."""

    def __init__(self, draw: Callable[[], Inputs], contenders: Mapping[str, Contender]) -> None:
        self.contenders = dict(contenders)
        self.seconds: dict[str, list[float]] = {name: [] for name in contenders}
        self.repetitions = 0
        self.cost = 0.0  # seconds of the last repetition, drawing included
        self._draw = draw

    def warm_up(self) -> None:
        """Run each contender once, unmeasured; those that differ only in their threads once for all."""
        inputs = self._draw()
        most = max(contender.threads for contender in self.contenders.values())
        for contender in self.contenders.values():
            if contender.threads == most:
                _timed(contender, inputs)

    def repeat(self) -> None:
        start = time.perf_counter()
        inputs = self._draw()
        names = list(self.contenders)
        first = self.repetitions % len(names)
        for name in names[first:] + names[:first]:
            self.seconds[name].append(_timed(self.contenders[name], inputs))
        self.repetitions += 1
        self.cost = time.perf_counter() - start

    def ratios(self, over: str, under: str) -> list[float]:
        """Time per element of one contender over that of another, one ratio a repetition."""
        scale = self.contenders[under].elements / self.contenders[over].elements
        return [a / b * scale for a, b in zip(self.seconds[over], self.seconds[under], strict=True)]


def take_turns(races: list[Race], seconds: float, most: int, report: Callable[[float], None]) -> None:
    """Repeat all races in turn, so that a busy minute of the machine harms each a little and none much.

    Each race runs at least once and at most `most` times; none starts that would end after `seconds` from now.
    """
    start = time.perf_counter()
    deadline = start + seconds
    running = list(races)
    while running:
        for race in list(running):
            if race.repetitions and (race.repetitions >= most or time.perf_counter() + race.cost > deadline):
                running.remove(race)
                continue
            race.repeat()
            spent = (time.perf_counter() - start) / max(seconds, 1e-9)
            done = sum(race.repetitions for race in races) / (most * len(races))
            report(min(1.0, max(spent, done)))


@contextmanager
def undisturbed() -> Iterator[None]:
    """No garbage collection inside; torch's number of threads is put back afterwards."""
    threads, collecting = torch.get_num_threads(), gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        if collecting:
            gc.enable()


def _timed(contender: Contender, inputs: Inputs) -> float:
    arguments = contender.prepare(inputs)
    if torch.get_num_threads() != contender.threads:
        torch.set_num_threads(contender.threads)
        torch.zeros(1 << 18).add_(1)  # wakes the threads
    start = time.perf_counter()
    contender.run(*arguments)
    return time.perf_counter() - start


def seconds_by_turn(runs: Mapping[str, Callable[[], object]], turns: int) -> dict[str, list[float]]:
    """Seconds of each, turn by turn; another one starts each time, and the first turn does not count."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    names = list(runs)
    for turn in range(turns + 1):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            start = time.perf_counter()
            runs[name]()
            seconds[name].append(time.perf_counter() - start)
    return {name: each[1:] for name, each in seconds.items()}


@dataclass(frozen=True)
class Ratio:
    """One thing's time beside another's: `ratio` is the median of ratios formed within a turn, `target` what it should
    be at most (costs) or at least (gains), if anything.
    """

    what: str
    over: str
    milliseconds: float
    ratio: float
    target: float | None


def cost(seconds: Mapping[str, list[float]], what: str, over: str, target: float | None) -> Ratio:
    """How many times as long `what` takes as `over`."""
    ratios = [a / b for a, b in zip(seconds[what], seconds[over], strict=True)]
    return Ratio(what, over, 1e3 * statistics.median(seconds[what]), statistics.median(ratios), target)


def gain(seconds: Mapping[str, list[float]], what: str, over: str, target: float | None) -> Ratio:
    """How many times faster `what` is than `over`."""
    ratios = [b / a for a, b in zip(seconds[what], seconds[over], strict=True)]
    return Ratio(what, over, 1e3 * statistics.median(seconds[what]), statistics.median(ratios), target)
