"""Certificates of the scikit-learn estimator, attacked in the user's units to the last float64."""

import itertools
import random
import warnings
from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from linfdist.sklearn import LinfDistClassifier

from .soak_certificates import BEYOND, FEW_CORNERS, Found

RANDOM = 500  # attempts of each kind
SAMPLES = 60
Floats = NDArray[np.float64]


def run_estimator(seed: int) -> Found:
    """Fit a classifier to random data, certify, and move the samples within what was proved."""
    draw, generator = random.Random(seed), np.random.default_rng(seed)
    x, scale = _data(draw, generator)
    y = (x.mean(1) > np.median(x.mean(1))).astype(np.int64) + (x[:, 0] > np.quantile(x[:, 0], 0.8))
    y[:3] = 0, 1, 2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        classifier = LinfDistClassifier(
            scale=scale, eps=0.05, width=16, depth=2, max_iter=60, random_state=seed % 2**31
        )
        classifier.fit(x, y)
    eps: Any = draw.choice([None, "0.01", Fraction(1, 30), generator.random(x.shape[1]) * 0.1])
    proof = classifier.certify(x[:SAMPLES], eps)
    found = Found(Counter({"networks": 1, "certificates": SAMPLES}))
    radius = np.minimum(proof.radius.numpy(), 4.0)[:, None]
    _attack(classifier, x[:SAMPLES], radius, radius[:, 0] > 0, found, generator, "radius")
    if eps is not None and proof.certified is not None:
        each = np.full(1, float(Fraction(eps))) if isinstance(eps, str | Fraction) else eps
        reach = np.nextafter(np.broadcast_to(each, (SAMPLES, x.shape[1])), 0.0)
        _attack(classifier, x[:SAMPLES], reach, proof.certified.numpy(), found, generator, "eps")
    beyond = Found()
    _attack(classifier, x[:SAMPLES], 4 * radius, radius[:, 0] > 0, beyond, generator, BEYOND)
    found.counts["images broken at four times the radius"] += beyond.counts["broken"]
    del found.counts["broken"]
    return found


def _data(draw: random.Random, generator: np.random.Generator) -> tuple[Floats, Any]:
    """Features of very different ranges, far from 0 or near it, some of them constant or with a few values."""
    features = draw.choice([1, 2, 3, 5, 9, 17])
    x = generator.random((120, features))
    size = 10.0 ** generator.integers(-8, 9, features)
    offset = size * 10.0 ** generator.integers(-2, 6, features) * generator.choice([-1, 0, 1], features)
    x = x * size + offset
    if features > 2 and draw.random() < 0.5:
        x[:, -1] = offset[-1]
    return x, draw.choice(["range", 1.0]) if size.max() / size.min() < 1e3 else "range"


def _attack(
    classifier: LinfDistClassifier, x: Floats, reach: Floats, claimed: NDArray[np.bool_], found: Found,
    generator: np.random.Generator, what: str,
) -> None:  # fmt: skip
    if not claimed.any():
        return
    x, change = x[claimed], (reach * classifier.scale_)[claimed]
    change = np.broadcast_to(np.nextafter(change, 0.0).clip(min=0.0), x.shape)
    before = classifier.predict(x)
    fooled = np.zeros(len(x), dtype=bool)
    found.counts["certificates attacked"] += len(x)
    for name, sides in _sides(x.shape[1], len(x), generator):
        for few in np.array_split(sides, max(1, len(sides) * x.size // 2**20)):
            moved = x + few * change
            for _ in range(2):  # rounding may have led out of the box
                moved = np.where(np.abs(moved - x) > change, np.nextafter(moved, x), moved)
            found.counts["attacked images"] += len(few) * len(x)
            wrong = classifier.predict(moved.reshape(-1, x.shape[1])).reshape(-1, len(x)) != before
            fooled |= wrong.any(0)
            if wrong.any() and what != BEYOND:
                pair = np.stack([np.broadcast_to(x, moved.shape)[wrong], moved[wrong]])
                found.broken[f"{what} by {name}"] = torch.from_numpy(pair)
                return
    found.counts["broken"] += int(fooled.sum())


def _sides(features: int, samples: int, generator: np.random.Generator) -> list[tuple[str, Floats]]:
    """Directions (K, samples, features) of [-1, 1]: all corners if features are few, random ones, and insides."""
    shape = (RANDOM, samples, features)
    corners = np.sign(generator.random(shape) - 0.5)
    sides = [("a random corner", corners), ("a random inside", corners * generator.random(shape))]
    sides.append(("a few features", np.where(generator.random(shape) < 0.3, corners, 0.0)))
    if features <= FEW_CORNERS:
        every = np.array(list(itertools.product((-1.0, 1.0), repeat=features)))[:, None]
        sides.append(("a corner", np.broadcast_to(every, (len(every), samples, features))))
    return sides
