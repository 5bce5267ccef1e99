"""Small experiments, one row each: `python -m tools.study RUN...` keeps the rows of finished runs.

An experiment is a recipe with settings and held-out training images: `linfdist train mnist-quick --set holdout=5000
--set lr=0.05 --out runs/study/lr-0.05`. Its numbers are those of its last epoch on the held-out images, by the margin.
"""

import argparse
import json
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator

from linfdist import recipes
from linfdist.eps import down, nearest
from linfdist.experiments.tables.layout import mean_and_deviation
from linfdist.ops.machine import in_words
from linfdist.recipes import Recipe, setting
from linfdist.runs.folder import Run
from linfdist.runs.records import Percent, Record, append_records, read_records

from . import attempt
from .markdown import markdown

FILE = Path("results") / "study.jsonl"


class Experiment(Record):
    """One experiment: its recipe, which held images out, and percentages of these images."""

    name: str
    recipe: Recipe
    certified: Percent
    clean: Percent
    seen_certified: Percent | None = None  # of training images as they are; earlier runs did not measure it
    held_out: Literal["spaced", "spread"] = "spaced"  # evenly, as until 2026-11-17, or without a preferred period
    minutes: float = Field(ge=0)
    machine: str
    date: str

    @field_validator("recipe")
    @classmethod
    def _holds_out(cls, recipe: Recipe) -> Recipe:
        if not recipe.holdout:
            raise ValueError("it held no images out")
        return recipe


def experiment(run: Run) -> Experiment:
    """Make the row of a finished run; ValueError if it held no images out, so that its numbers mean nothing."""
    if not run.recipe.holdout:
        raise ValueError(f"{run.folder} held no images out: train with --set holdout=5000 to compare it with others")
    last = run.metrics[-1] if run.metrics else {}
    if not {"certified", "clean"} <= last.keys():
        raise ValueError(f"{run.folder} has no certified accuracy in its last epoch: train it with `linfdist train`")
    return Experiment(
        name=run.name,
        recipe=run.recipe,
        certified=float(last["certified"]),
        clean=float(last["clean"]),
        seen_certified=last.get("seen_certified"),
        held_out="spread" if "seen_certified" in last else "spaced",  # both are of the same version
        minutes=round(run.seconds / 60, 1),
        machine=in_words(),
        date=date.today().isoformat(),
    )


def settings(recipe: Recipe) -> dict[str, Any]:
    """List what an experiment has changed, without the keys that have no effect."""
    silent = ("seed", "holdout")
    return {key: value for key, value in recipes.changes(recipe).items() if key not in silent and value is not None}


def read(path: Path) -> list[Experiment]:
    """Read all rows; none if there is no such file. ValueError names a line that is no experiment."""
    return read_records(path, Experiment)


def table(experiments: Sequence[Experiment]) -> str:
    """Write a table in Markdown: one line for all seeds, the best first of those that held the same images out."""
    groups: dict[str, list[Experiment]] = {}
    for row in experiments:
        key = json.dumps([row.recipe.name, settings(row.recipe), *_held_out(row)], sort_keys=True)
        groups.setdefault(key, []).append(row)
    ordered = sorted(
        groups.values(),
        key=lambda rows: (rows[0].recipe.data, *_held_out(rows[0]), -sum(row.certified for row in rows) / len(rows)),
    )
    seen = [[row.seen_certified for row in rows if row.seen_certified is not None] for rows in ordered]
    lines = [
        [rows[0].recipe.data, f"`{rows[0].recipe.name}`", _in_words(rows[0].recipe),
         f"{rows[0].recipe.holdout:,} {rows[0].held_out}", str(len(rows)),
         mean_and_deviation([row.certified for row in rows], down),
         mean_and_deviation([row.clean for row in rows], nearest),
         mean_and_deviation(trained, down) if trained else "–",
         f"{sum(row.minutes for row in rows) / len(rows):.1f}"]
        for rows, trained in zip(ordered, seen, strict=True)
    ]  # fmt: skip
    headings = ["data", "recipe", "settings", "held out", "runs", "certified", "clean", "certified, training images",
                "minutes"]  # fmt: skip
    return markdown(headings, lines, 4)


def _held_out(row: Experiment) -> tuple[bool, int]:
    """Return the sorting key of the held-out images: today's selection first, then the larger one."""
    return row.held_out != "spread", -row.recipe.holdout


def _in_words(recipe: Recipe) -> str:
    return " ".join(f"`{setting(key, value)}`" for key, value in settings(recipe).items()) or "as it is"


def keep(folders: Sequence[Path], path: Path) -> list[Experiment]:
    """Append the rows of these runs, except those that are there, and return the new ones."""
    known = [_identity(row) for row in read(path)]
    new: list[Experiment] = []
    for folder in folders:
        run = Run(folder)
        run.check_trained()
        row = experiment(run)
        if _identity(row) not in known:
            known.append(_identity(row))
            new.append(row)
    if new:
        append_records(path, [row.model_dump(exclude_none=True) for row in new])
    return new


def _identity(row: Experiment) -> dict[str, Any]:
    return row.model_dump(exclude={"machine", "date"})


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.study", description="Keep rows of experiments.")
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="the folder of a finished run")
    parser.add_argument("--file", type=Path, default=FILE, help=f"default: {FILE}")
    given = parser.parse_args(arguments)

    def work() -> None:
        new = keep(given.runs, given.file)
        for row in new:
            print(f"{row.name}: {row.certified:.2f} % certified, {row.clean:.2f} % clean, {row.minutes:g} minutes")
        print(f"{len(new)} new rows in {given.file}, {len(given.runs) - len(new)} were there")

    return attempt(work)


if __name__ == "__main__":
    raise SystemExit(main())
