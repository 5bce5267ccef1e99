"""How much each sample counts in the training, from scikit-learn's `sample_weight` and `class_weight`."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import compute_class_weight  # type: ignore[import-untyped]
from sklearn.utils.validation import _check_sample_weight  # type: ignore[import-untyped]

from .scaling import Floats, check_unmasked


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
    """Make one of samples that are the same, whose weights are added, in an order that is not that of the samples.

    So training cannot tell a sample with weight 2 from two samples. Where there is nothing to tell, since all are
    different and count the same, everything stays as it is.
    """
    table = np.column_stack([x.reshape(len(x), -1), labels])
    unique, first, where = np.unique(table, axis=0, return_index=True, return_inverse=True)
    if len(unique) == len(x) and (counts == counts[0]).all():
        return x, labels, counts
    return x[first], labels[first], np.asarray(np.bincount(where.reshape(-1), counts), dtype=np.float64)
