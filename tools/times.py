"""The course of a training, for the chart of certified accuracy against time: `python -m tools.times NAME RUN...`.

Writes results/times/NAME.json, which `make pages` draws. Several runs, of which each starts from the one before it, are
one training; they must be of one data set and one ε.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.time_to import Course, of_run
from linfdist.files import write_atomically

from . import ROOT, attempt

FOLDER = "times"
POINTS = 200  # a chart needs no more


def course(runs: Sequence[Path]) -> Course:
    """Join runs to one course; ValueError if they do not belong together."""
    first, *others = [of_run(run) for run in runs]
    points = list(first.points)
    for other in others:
        if (other.data, other.eps) != (first.data, first.eps):
            raise ValueError(f"{other.name} is of {other.data} at ε = {other.eps}, not of {first.data} at {first.eps}")
        last = points[-1]
        points += [
            replace(
                point,
                epoch=last.epoch + point.epoch,
                minutes=last.minutes + point.minutes,
                core_minutes=last.core_minutes + point.core_minutes,
            )
            for point in other.points
        ]
    return replace(first, points=tuple(points))


def write(path: Path, joined: Course) -> None:
    """Write at most 200 epochs, evenly spaced, the last one always."""
    points, count = joined.points, min(POINTS, len(joined.points))
    chosen = sorted({len(points) - 1 - k * len(points) // count for k in range(count)})
    kept = [[round(points[k].core_minutes, 2), points[k].certified] for k in chosen]
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"data": joined.data, "eps": joined.eps, "images": joined.images, "core_minutes, certified": kept}
    write_atomically(path, json.dumps(content) + "\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.times", description="Keep the course of a training.")
    parser.add_argument("name", help="what the chart calls it")
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="folders of runs, in their order")
    parser.add_argument("--results", type=Path, metavar="DIR", default=ROOT / "results", help="where it goes")
    given = parser.parse_args(arguments)
    return attempt(lambda: write(given.results / FOLDER / f"{given.name}.json", course(given.runs)))


if __name__ == "__main__":
    raise SystemExit(main())
