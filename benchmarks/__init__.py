"""What measures speed beyond `linfdist bench`: costs of certificates, gains of integers, parts of a training step.

Run from the root of the repository: `python -m benchmarks.certify`, `python -m benchmarks.exact NETWORK`,
`python -m benchmarks.latency`, `python -m benchmarks.startup`, `python -m benchmarks.training`,
`python -m benchmarks.time_to PERCENT RUN...`, `python -m benchmarks.thresholds RECIPE --eps E`.
`--help` shows the options.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from linfdist.ops.machine import usable_cores


def seconds_by_turn(
    runs: Mapping[str, Callable[[], object]], turns: int, clock: Callable[[], float] = time.perf_counter
) -> dict[str, list[float]]:
    """Seconds of each, turn by turn; another one starts each time, and the first turn does not count."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    names = list(runs)
    for turn in range(turns + 1):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            start = clock()
            runs[name]()
            seconds[name].append(clock() - start)
    return {name: each[1:] for name, each in seconds.items()}


@dataclass(frozen=True)
class Ratio:
    """Hold one thing's time beside another's.

    `ratio` is the median of ratios formed within a turn. `target` is what the ratio should be at most (costs) or at
    least (gains); None if there is no target.
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


def parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the options that all benchmarks have."""
    common = argparse.ArgumentParser(description=description)
    common.add_argument("--quick", action="store_true", help="fewer repetitions")
    common.add_argument("--threads", type=int, default=min(2, usable_cores()), metavar="N")
    return common


def parse(common: argparse.ArgumentParser) -> argparse.Namespace:
    """Read the command line and set the number of threads."""
    given = common.parse_args()
    if not 1 <= given.threads <= usable_cores():
        common.error(f"--threads must be between 1 and the number of cores, {usable_cores()}, got {given.threads}")
    torch.set_num_threads(given.threads)
    return given
