"""Measure what a card claims: the same way when a network joins the zoo and whenever it is measured again."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from linfdist import models
from linfdist.attacks import attack
from linfdist.data import Dataset
from linfdist.eps import parse_eps
from linfdist.evaluate import BATCH, Shard, Violated, evaluate, violations
from linfdist.evaluate.finished import Finished
from linfdist.evaluate.progress import Bar
from linfdist.evaluate.rows import as_pixels, predictions
from linfdist.evaluate.summary import Row
from linfdist.models import PixelNet
from linfdist.zoo.cards import Attacked

METHOD = "box"
CERTIFIED = 1000  # of the images that cannot be broken are attacked all the same: a broken one would disprove the proof


@dataclass(frozen=True)
class Measured:
    """The numbers of a card, and the rows they were made from."""

    n: int
    clean: float
    certified: float
    mean_radius: float
    pgd20: Attacked
    strongest: Attacked
    rows: list[Row]


def measure(model_file: Path, test_set: Dataset, eps: str, out: Path, show_progress: bool = False) -> Measured:
    """Certify all images, then attack those that matter: all that are right but not certified, and those certified ones
    that have the smallest radii. The rows of the certification are kept in `out`: stopped, the same call resumes.

    A certified image that is broken raises `Violated`.
    """
    network = models.load(model_file)
    summary: dict[str, Any] = evaluate(
        network, test_set, eps, out, model_file, method=METHOD, show_progress=show_progress
    ).summary
    rows = Finished(out, Shard()).rows(range(summary["n"]), [])
    chosen, which = choose(rows)
    attacked = {}
    for name in ("pgd", "strong"):
        _attack(network, test_set, eps, chosen, name, show_progress)
        if found := violations(rows, eps):
            raise Violated(found, [])
        broken = sum(row["attacks"][name]["broken"] for row in chosen)
        right = sum(row["prediction"] == row["label"] for row in rows)
        attacked[name] = Attacked(attack=name, percent=100 * (right - broken) / len(rows), images=which)
    return Measured(
        n=summary["n"],
        clean=summary["clean"],
        certified=summary["certified"],
        mean_radius=summary["mean_radius"],
        pgd20=attacked["pgd"],
        strongest=attacked["strong"],
        rows=rows,
    )


def choose(rows: Sequence[Row]) -> tuple[list[Row], str]:
    """Choose the rows to attack, and say in words which these are."""
    right = [row for row in rows if row["prediction"] == row["label"]]
    open_ = [row for row in right if not row["certified"]]
    certified = sorted((row for row in right if row["certified"]), key=lambda row: row["radius"])
    weakest = certified[:CERTIFIED]
    which = f"all {len(open_):,} that are right but not certified, and "
    which += f"the {len(weakest):,} of smallest radius of the certified ones"
    return open_ + weakest, which


def _attack(
    network: PixelNet, test_set: Dataset, eps: str, rows: Sequence[Row], name: str, show_progress: bool
) -> None:
    """Enter the attack's results into the rows."""
    search = attack(name)
    with Bar(f"{test_set.name} {name}", len(rows), 0, show_progress) as bar:
        for start in range(0, len(rows), BATCH):
            batch = rows[start : start + BATCH]
            indices = torch.tensor([row["index"] for row in batch])
            x, y = as_pixels(network, test_set.images[indices]), test_set.labels[indices]
            found = search(network, x, y.to(x.device), parse_eps(eps))
            classes = predictions(network, found.images)
            for row, broken, size, prediction in zip(
                batch, found.broken.tolist(), found.size.tolist(), classes, strict=True
            ):
                row["attacks"][name] = {"broken": broken, "prediction": prediction, "size": size}
            bar.advance(len(batch))
