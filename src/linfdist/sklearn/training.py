"""The training behind `fit`: weights of samples, a plain ℓ∞-dist net that works untuned on small data, temperature."""

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize_scalar  # type: ignore[import-untyped]
from sklearn.exceptions import ConvergenceWarning  # type: ignore[import-untyped]
from sklearn.utils import compute_class_weight  # type: ignore[import-untyped]
from sklearn.utils.validation import _check_sample_weight  # type: ignore[import-untyped]
from torch import Tensor

from ..data import Dataset
from ..data.folder import measure
from ..models import PixelNet
from ..recipes.schema import build
from ..training import Trainer
from .scaling import Floats, check_unmasked

LARGEST_BATCH = 64
LEARNING_RATE = 0.03
CE_START, CE_END = 2.0, 0.1  # λ of the loss: with 0.5 and 0.001, short trainings may give up a whole class
P_START, P_END = 8.0, 1000.0
SHARES = (0.1, 0.75, 0.15)  # of the steps: at p = 8, while p grows, at p = inf
MARGIN = 4  # the margin aimed at, in radii: 2 would do for a network that gets all samples right
LEAST_MARGIN = 0.02  # of the network's inputs, where eps is tiny
LINES = 10  # that a verbose training prints
REST = 20  # an interrupted training brings p to infinity in a twentieth of its steps


def weights_of(sample_weight: ArrayLike | None, x: Floats) -> Floats:
    """Return one finite weight >= 0 for each sample, not all 0; 1 for all if none are given."""
    check_unmasked(sample_weight, "sample_weight")
    weights: Floats = _check_sample_weight(sample_weight, x, dtype=np.float64)
    if (weights < 0).any() or not (weights > 0).any():
        raise ValueError(
            f"sample_weight: goes from {weights.min()} to {weights.max()}; must not be negative, nor all 0"
        )
    return weights


def class_weights(
    given: Mapping[Any, float] | str | None, classes: NDArray[Any], labels: NDArray[Any], counts: Floats
) -> Floats:
    """Return one weight for each class. labels: indices of classes; counts: how much each sample counts by itself.

    "balanced" gives every class the same sum. scikit-learn's own formula counts samples; this one counts their weights,
    so that a sample with weight 2 is as good as two.
    """
    if isinstance(given, str) and given == "balanced":
        return np.asarray(counts.sum() / (len(classes) * np.bincount(labels, counts)))
    if given is not None and not isinstance(given, Mapping):
        raise ValueError(f"class_weight = {given!r}: must be 'balanced', a dict from classes to weights, or None")
    weights = np.asarray(compute_class_weight(given, classes=classes, y=classes[labels]), dtype=np.float64)
    if not (np.isfinite(weights) & (weights >= 0)).all() or (weights > 0).sum() < 2:
        raise ValueError(f"class_weight = {given!r}: weights must be finite, none negative, and two at least not 0")
    return weights


def merged(x: Floats, labels: NDArray[Any], counts: Floats) -> tuple[Floats, NDArray[Any], Floats]:
    """Merge equal samples and add their weights, in an order that does not depend on that of the samples.

    So training cannot tell a sample with weight 2 from two samples. If all samples differ and count the same, nothing
    is changed.
    """
    table = np.column_stack([x.reshape(len(x), -1), labels])
    unique, first, where = np.unique(table, axis=0, return_index=True, return_inverse=True)
    if len(unique) == len(x) and (counts == counts[0]).all():
        return x, labels, counts
    return x[first], labels[first], np.asarray(np.bincount(where.reshape(-1), counts), dtype=np.float64)


def updates(samples: int) -> int:
    """Return the default number of updates: small data need fewer, and then `fit` should take seconds."""
    return min(300 + 7 * samples // 10, 1000)


@dataclass(frozen=True)
class Settings:
    """Settings of the estimator's training. eps: in the network's units; steps: the number of updates."""

    eps: float
    width: int
    depth: int
    steps: int
    seed: int
    verbose: bool


@dataclass(frozen=True)
class Trained:
    """The network, and how many updates it has had."""

    network: PixelNet
    steps: int


def train(x: Tensor, y: Tensor, counts: Tensor | None, classes: int, settings: Settings) -> Trained:
    """Train on inputs (N, C, H, W) of [0, 1]. Ctrl-C ends it early, but not before p has grown to infinity.

    counts: (N,) float64, how much each of them counts; None: all the same.
    A second Ctrl-C ends it at once. What is returned is a network in eval mode, in any case.
    """
    dataset = Dataset("X", x, y, tuple(str(label) for label in range(classes)))
    info = measure(dataset, "X")
    batch = min(LARGEST_BATCH, len(x))
    epochs = settings.steps / (len(x) // batch)
    e1, e2, e3 = (share * epochs for share in SHARES)
    recipe = build(
        {
            "name": "sklearn", "source": "linfdist.sklearn", "data": "./in-memory", "eps": repr(min(settings.eps, 1.0)),
            "model": "dist_net", "width": settings.width, "depth": settings.depth,
            "loss": "scaled_ce", "threshold": repr(min(max(MARGIN * settings.eps, LEAST_MARGIN), 2.0)),
            "ce_start": CE_START, "ce_end": CE_END, "batch_size": batch, "lr": LEARNING_RATE, "decay": "none",
            "p_start": P_START, "p_end": P_END, "p_snap": True, "e1": e1, "e2": e2, "e3": e3, "lr_schedule": "cosine",
            "seed": settings.seed,
        },
        given={},
    )  # fmt: skip
    trainer = Trainer(recipe, dataset, replace(info, std=max(info.std, 2.0**-20)), counts=counts)
    try:
        _steps(trainer, settings.verbose)
    except KeyboardInterrupt:
        warnings.warn(
            f"the training was interrupted after {trainer.done} of {trainer.total} updates; "
            "the classifier is usable, but could be better",
            ConvergenceWarning,
            stacklevel=3,
        )
        _shorten(trainer)
    trainer.check_weights()
    return Trained(trainer.finish(), trainer.done)


def _steps(trainer: Trainer, verbose: bool) -> None:
    often = max(1, trainer.total // LINES)
    while not trainer.finished:
        state, loss = trainer.state, trainer.step()
        if verbose and (trainer.done % often == 0 or trainer.finished):
            print(f"update {trainer.done} of {trainer.total}  p {state.p:.4g}  loss {loss:.4f}", flush=True)


def _shorten(trainer: Trainer) -> None:
    """Take p to infinity in a few steps: weights that were trained at a small p are worth little without."""
    state, steps = trainer.state, max(1, trainer.total // REST)
    if math.isinf(state.p):
        return
    try:
        for step in range(steps):
            share = 2 * (step + 1) / steps
            p = state.p * (P_END / state.p) ** share if share < 1 else math.inf
            trainer.step(replace(state, p=p, lr=state.lr * (1 - step / steps)))
    except KeyboardInterrupt:
        return


def likeliest_factor(logits: Floats, labels: NDArray[Any], counts: Floats) -> float:
    """Find the factor of the logits, between 2^-10 and 2^10, for which the labels are most likely."""

    def surprise(exponent: float) -> float:
        scaled = logits * 2.0**exponent
        scaled -= scaled.max(1, keepdims=True)
        each = np.log(np.exp(scaled).sum(1)) - scaled[np.arange(len(labels)), labels]
        return float(np.average(each, weights=None if (counts == counts[0]).all() else counts))

    return float(2.0 ** minimize_scalar(surprise, bounds=(-10, 10), method="bounded").x)
