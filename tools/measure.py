"""Measure what a card claims: the same way when a network joins the zoo and whenever it is measured again."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from linfdist import models
from linfdist.attacks import attack
from linfdist.data import Dataset
from linfdist.evaluation import BATCH, Violated, evaluate, violations
from linfdist.evaluation.batch import attempt
from linfdist.evaluation.progress import Bar
from linfdist.models import Network
from linfdist.models.zoo.cards import Survivors
from linfdist.runs.folder import Run
from linfdist.runs.rows import Row

METHOD = "box"
CERTIFIED = 1000  # of the images that cannot be broken are attacked all the same: a broken one would disprove the proof


@dataclass(frozen=True)
class Measured:
    """The numbers of a card, and the rows they were made from."""

    n: int
    clean: float
    certified: float
    mean_radius: float
    pgd20: Survivors
    strongest: Survivors
    rows: list[Row]


def measure(model_file: Path, test_set: Dataset, eps: str, out: Path, show_progress: bool = False) -> Measured:
    """Certify all images, then attack those that matter.

    These are all that are correct but not certified, and those certified ones that have the smallest radii. The rows of
    the certification are kept in `out`: if it is stopped, the same call resumes. A certified image that is broken
    raises `Violated`.
    """
    network = models.load(model_file)
    summary = evaluate(network, test_set, eps, out, model_file, method=METHOD, show_progress=show_progress).summary
    rows = {row.index: row for row in Run(out).rows}
    chosen, which = choose(list(rows.values()))
    survivors = {}
    for name in ("pgd", "strong"):
        rows |= _attack(network, test_set, eps, [rows[row.index] for row in chosen], name, show_progress)
        if found := violations(rows.values(), eps):
            raise Violated(found, [])
        broken = sum(rows[row.index].attacks[name].broken for row in chosen)
        right = sum(row.correct for row in rows.values())
        survivors[name] = Survivors(attack=name, percent=100 * (right - broken) / len(rows), images=which)
    return Measured(
        n=summary["n"],
        clean=summary["clean"],
        certified=summary["certified"],
        mean_radius=summary["mean_radius"],
        pgd20=survivors["pgd"],
        strongest=survivors["strong"],
        rows=list(rows.values()),
    )


def choose(rows: Sequence[Row]) -> tuple[list[Row], str]:
    """Choose the rows to attack, and say in words which these are."""
    open_ = [row for row in rows if row.correct and not row.certified]
    certified = sorted((row for row in rows if row.certified), key=lambda row: row.radius)
    weakest = certified[:CERTIFIED]
    which = f"all {len(open_):,} that are right but not certified, and "
    which += f"the {len(weakest):,} of smallest radius of the certified ones"
    return open_ + weakest, which


def _attack(
    network: Network, test_set: Dataset, eps: str, rows: Sequence[Row], name: str, show_progress: bool
) -> dict[int, Row]:
    """Attack the images of the rows; return the rows, by index, with the results of this attack."""
    search, done = attack(name), {}
    with Bar(f"{test_set.name} {name}", len(rows), 0, show_progress) as bar:
        for start in range(0, len(rows), BATCH):
            batch = rows[start : start + BATCH]
            indices = torch.tensor([row.index for row in batch])
            _, tried = attempt(network, search, test_set.images[indices], test_set.labels[indices], eps)
            for row, each in zip(batch, tried, strict=True):
                done[row.index] = replace(row, attacks={**row.attacks, name: each})
            bar.advance(len(batch))
    return done
