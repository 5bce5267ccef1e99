"""Attacks on scikit-learn's classifiers, in features scaled to [0, 1]: which samples stay correct is an upper bound.

Each attack returns (n,) bool, whether a sample is correct and was not broken within |x′ − x| <= eps. Success is always
judged by the classifier's own `predict`.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]

STEPS, STARTS = 40, 3  # of PGD on the MLP, for each other class
SWEEPS, VALUES = 2, 6  # over the features, and values tried for each of them, in the attack on forests


def attack_linear(model: Any, x: Floats, y: Labels, eps: float, train: Floats) -> NDArray[np.bool_]:
    """Logistic regression: for each other class the corner that favours it most, which is the optimum for that pair.

    A difference of two logits is linear, so up to rounding this is no bound but the robust accuracy itself.
    """
    weights = model.coef_ if len(model.classes_) > 2 else np.concatenate([-model.coef_, model.coef_])  # (classes, F)
    right = model.predict(x) == y
    own = weights[np.searchsorted(model.classes_, y)]
    for other in weights:
        right &= model.predict(x + eps * np.sign(other - own)) == y
    return right


def attack_mlp(model: Any, x: Floats, y: Labels, eps: float, train: Floats) -> NDArray[np.bool_]:
    """PGD on the difference of two logits, towards each other class, 3 starts of 40 steps; the last layer is linear."""
    layers = [(torch.from_numpy(w), torch.from_numpy(b)) for w, b in zip(model.coefs_, model.intercepts_, strict=True)]
    own = torch.from_numpy(np.searchsorted(model.classes_, y))
    right = model.predict(x) == y
    generator = torch.Generator().manual_seed(0)
    start = torch.from_numpy(x)
    for other in range(len(model.classes_)):
        for number in range(STARTS):
            noise = torch.rand(start.shape, generator=generator, dtype=torch.float64) * 2 - 1
            delta = noise * eps if number else torch.zeros_like(start)
            for step in range(STEPS):
                delta.requires_grad_()
                z = _logits(layers, start + delta)
                gain = (z[:, other] - z.gather(1, own[:, None])[:, 0]).sum()
                (gradient,) = torch.autograd.grad(gain, delta)
                size = 0.25 * eps * (1 - step / STEPS)
                delta = (delta.detach() + size * gradient.sign()).clamp(-eps, eps)
            right &= model.predict(x + delta.numpy()) == y
    return right


def _logits(layers: list[tuple[Tensor, Tensor]], x: Tensor) -> Tensor:
    for number, (weight, bias) in enumerate(layers):
        x = x @ weight + bias
        if number + 1 < len(layers):
            x = x.relu()
    return torch.cat([-x, x], 1) if x.shape[1] == 1 else x


def attack_forest(model: Any, x: Floats, y: Labels, eps: float, train: Floats) -> NDArray[np.bool_]:
    """Coordinate by coordinate, over values on both sides of the forest's own thresholds; black-box but for these.

    A forest is constant between thresholds, so for each feature the values between those within eps are all that
    matters; up to 6 of them are tried, and the one with the least lead of the right class is kept. Two sweeps over the
    features in random order, from the sample itself and from the nearest sample of another class, cut to the box.
    """
    own = np.searchsorted(model.classes_, y)
    thresholds = _thresholds(model, x.shape[1])
    generator = np.random.default_rng(0)
    right = model.predict(x) == y
    for begin in (x, _towards_others(model, x, y, eps, train)):
        rows = right.nonzero()[0]
        if not len(rows):
            break
        here, centre, label = begin[rows].copy(), x[rows], own[rows]
        for _ in range(SWEEPS):
            for feature in generator.permutation(x.shape[1]):
                tried = _values(thresholds[feature], centre[:, feature], eps, generator)  # (rows, values)
                if not tried.shape[1]:
                    continue
                every = np.repeat(here[:, None], tried.shape[1] + 1, 1)  # the last one stays as it is
                every[:, :-1, feature] = tried
                lead = _lead(model, every.reshape(-1, x.shape[1]), np.repeat(label, every.shape[1]))
                best = lead.reshape(every.shape[:2])[:, ::-1].argmin(1)  # on a tie, stay
                here = every[np.arange(len(rows)), every.shape[1] - 1 - best]
        right[rows] &= model.predict(here) == y[rows]
    return right


def _thresholds(model: Any, features: int) -> list[Floats]:
    split = [(tree.tree_.feature, tree.tree_.threshold) for tree in model.estimators_]
    feature, threshold = (np.concatenate(parts) for parts in zip(*split, strict=True))
    return [np.unique(threshold[feature == each]) for each in range(features)]


def _values(thresholds: Floats, centre: Floats, eps: float, generator: np.random.Generator) -> Floats:
    """Both ends of the interval, and points just above thresholds within it."""
    if not len(thresholds):
        return np.empty((len(centre), 0))
    ends = np.stack([centre - eps, centre + eps], 1)
    low, high = (np.searchsorted(thresholds, ends[:, end]) for end in (0, 1))
    share = generator.random((len(centre), VALUES - 2))
    index = (low[:, None] + share * (high - low)[:, None]).astype(int).clip(max=len(thresholds) - 1)
    inside = np.clip(thresholds[index] + 1e-6, ends[:, :1], ends[:, 1:])
    return np.concatenate([ends, inside], 1)


def _lead(model: Any, x: Floats, own: Labels) -> Floats:
    scores = model.predict_proba(x)
    mine = scores[np.arange(len(x)), own].copy()
    scores[np.arange(len(x)), own] = -1
    return mine - scores.max(1)


def _towards_others(model: Any, x: Floats, y: Labels, eps: float, train: Floats) -> Floats:
    """Find the nearest training sample that the forest puts into another class, cut to the box."""
    classes = model.predict(train)
    nearest = np.empty_like(x)
    for row, (sample, label) in enumerate(zip(x, y, strict=True)):
        others = train[classes != label]
        nearest[row] = others[np.abs(others - sample).max(1).argmin()]
    return np.clip(nearest, x - eps, x + eps)
