"""Measure an ordinary network beside ours: how far it is proved, and how far an attack has to go to break it.

python -m tools.undefended mnist fashion cifar10 tinyimagenet

Trains a small convolutional ReLU network with the cross-entropy alone, and writes results/undefended/NAME.json. The
picture of radii is drawn from these files (`make pages`).
"""

import argparse
import json
import time
from collections.abc import Callable, Sequence
from datetime import date
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor

import linfdist as ld
from linfdist import baselines
from linfdist.baselines import TRAINING_METHODS
from linfdist.files import write_atomically
from linfdist.models import PixelNet
from linfdist.ops.machine import in_words

from . import ROOT

Holds = Callable[[Tensor, Tensor, Fraction], Tensor]
FOLDER = ROOT / "results" / "undefended"
METHOD = "crown"  # the closest bounds of ReLU networks that the package has; intervals and the margin are tried first
EPOCHS = {"mnist": 2, "fashion": 3, "cifar10": 5}
IMAGES = 100  # the first ones of the test set, for proofs and attacks
PARTS = tuple(Fraction(1, k) for k in (64, 32, 16, 8, 4, 2, 1))  # of the eps that the recipe has: what is tried


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
    """Train and measure; curves are pairs of a radius and the percent of images."""
    epochs = EPOCHS[name] if epochs is None else epochs
    train_set, test = ld.data.load(name), ld.data.load(name, split="test")
    started = time.perf_counter()
    network = trained(name, train_set.images, train_set.labels, epochs)
    minutes = (time.perf_counter() - started) / 60
    with torch.no_grad():
        right = torch.cat([network(each / 255).argmax(1) for each in test.images.split(500)]) == test.labels
    x, y = test.images[:images] / 255, test.labels[:images]
    recipe, attack = ld.recipes.load(f"{name}-quick"), ld.attacks.attack("pgd", seed=0)
    radii = [part * recipe.fraction("eps") for part in PARTS]

    def proved(x: Tensor, y: Tensor, radius: Fraction) -> Tensor:
        certified = ld.certify(network, x, radius, y, method=METHOD, radii=False).certified
        assert certified is not None  # there is a radius to be proved
        return certified

    def survives(x: Tensor, y: Tensor, radius: Fraction) -> Tensor:
        return ~attack(network, x, y, radius).broken

    return {
        "data": name, "eps": recipe.eps, "network": "two convolutions and a linear layer, ReLU",
        "training": "cross-entropy", "epochs": epochs, "minutes": round(minutes, 1),
        "clean": 100 * float(right.double().mean()), "images": len(x), "method": METHOD,
        "radius, proved": curve(x, y, right[:images], radii, proved),
        "radius, survived": curve(x, y, right[:images], radii, survives),
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


def curve(x: Tensor, y: Tensor, right: Tensor, radii: Sequence[Fraction], holds: Holds) -> list[list[float]]:
    """Count, in percent, the images that are right and for which something holds at a radius and all smaller ones."""
    left = right.clone()
    points = [[0.0, 100 * float(left.double().mean())]]
    for radius in radii:
        if left.any():
            left[left.clone()] = holds(x[left], y[left], radius)
        points.append([float(radius), 100 * float(left.double().mean())])
    return points


if __name__ == "__main__":
    main()
