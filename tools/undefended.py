"""Measure an ordinary network beside ours: how far it is proved, and how far an attack has to go to break it.

python -m tools.undefended mnist fashion cifar10 tinyimagenet

Trains a small convolutional ReLU network with the cross-entropy alone, and writes results/undefended/NAME.json. The
picture of radii is drawn from these files (`make pages`).
"""

import argparse
import json
import time
from collections.abc import Sequence
from datetime import date
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor

import linfdist as ld
from linfdist import baselines
from linfdist.baselines import TRAINING_METHODS
from linfdist.files import write_atomically
from linfdist.machine import in_words
from linfdist.models import PixelNet

from . import ROOT
from .curve import POINTS

FOLDER = ROOT / "results" / "undefended"
METHOD = "crown"  # the closest bounds of ReLU networks that the package has; intervals and the margin are tried first
EPOCHS = {"mnist": 3, "fashion": 4, "cifar10": 6}
IMAGES = 200  # the first ones of the test set, for proofs and attacks
RADII = tuple(Fraction(k, 8) for k in (1, 2, 3, 4, 6, 8, 12, 16))  # of the attack, in units of the recipe's eps
_DIGITS = 10**6


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the networks of the data sets that are named."""
    parser = argparse.ArgumentParser(prog="python -m tools.undefended", description=__doc__)
    parser.add_argument("data", nargs="+", choices=EPOCHS)
    for name in parser.parse_args(arguments).data:
        row = measure(name)
        FOLDER.mkdir(parents=True, exist_ok=True)
        write_atomically(FOLDER / f"{name}.json", json.dumps(row) + "\n")
        print(f"{name}: {row['clean']:.2f} % correct, {row['minutes']:.1f} minutes of training", flush=True)


def measure(name: str, epochs: float | None = None, images: int = IMAGES) -> dict[str, Any]:
    """Train and measure. radii[k]: a radius that (k + 1)/200 of the images are proved to have; errors count as 0."""
    epochs = EPOCHS[name] if epochs is None else epochs
    train_set, test = ld.data.load(name), ld.data.load(name, split="test")
    started = time.perf_counter()
    network = trained(name, train_set.images, train_set.labels, epochs)
    minutes = (time.perf_counter() - started) / 60
    with torch.no_grad():
        right = torch.cat([network(each / 255).argmax(1) for each in test.images.split(500)]) == test.labels
    x, y = test.images[:images] / 255, test.labels[:images]
    proof = ld.certify(network, x, eps=None, method=METHOD)
    correct = proof.prediction == y
    recipe = ld.recipes.load(f"{name}-quick")
    return {
        "data": name, "eps": recipe.eps, "network": "two convolutions and a linear layer, ReLU",
        "training": "cross-entropy", "epochs": epochs, "minutes": round(minutes, 1),
        "clean": 100 * float(right.double().mean()), "images": len(x), "method": METHOD,
        "radii": curve(torch.where(correct, proof.radius, 0.0)),
        "radius, survived": survived(network, x, y, correct, [part * recipe.fraction("eps") for part in RADII]),
        "machine": in_words(), "date": date.today().isoformat(),
    }  # fmt: skip


def trained(name: str, images: Tensor, labels: Tensor, epochs: float) -> PixelNet:
    """Train as one does without a thought of attacks, flipping images where the data set's quick recipe does."""
    info, recipe = ld.data.info(name), ld.recipes.load(f"{name}-quick")
    method = TRAINING_METHODS["natural"]()
    torch.manual_seed(0)
    network = method.network(info.shape, info.num_classes, info.mean, info.std)
    plan = method.plan(recipe.eps, epochs, flip=recipe.flip)
    return baselines.train(network, images, labels, method, plan)


def survived(network: PixelNet, x: Tensor, y: Tensor, correct: Tensor, radii: Sequence[Fraction]) -> list[list[float]]:
    """Count, in percent, the images that are correct and survive PGD at each radius and all smaller ones."""
    attack, left = ld.attacks.attack("pgd", seed=0), correct.clone()
    points = [[0.0, 100 * float(left.double().mean())]]
    for radius in radii:
        left &= ~attack(network, x, y, radius).broken
        points.append([float(radius), 100 * float(left.double().mean())])
    return points


def curve(radii: Tensor) -> list[float]:
    """Choose 200 points of the curve of shares against radii, rounded down, the largest radius first."""
    ordered = sorted(radii.tolist(), reverse=True)
    return [ordered[-(-(k + 1) * len(ordered) // POINTS) - 1] * _DIGITS // 1 / _DIGITS for k in range(POINTS)]


if __name__ == "__main__":
    main()
