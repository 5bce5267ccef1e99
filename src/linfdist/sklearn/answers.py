"""The estimator's answers: certificates of rows, and classes with a value for abstention."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..certificates import Certificate

ABSTAIN_TEXT, ABSTAIN_NUMBER = "abstain", -1


@dataclass(frozen=True, repr=False, eq=False)
class RowCertificate(Certificate):
    """Certificates of the rows of a table, for `predict` as executed in floating point.

    prediction: (B,) int64, indices into `classes_`.
    radius: (B,) float64, in units of `scale_`: the class is the same for every row x′ with |x′ − x| <= radius * scale_;
        0 where nothing is proved, infinity where nothing changes the class.
    certified: (B,) bool: the class is the same for every row within the changes that eps allows.
    at: eps in words. unit: what a radius of 1 means.
    """

    at: str = ""
    unit: str = "units of scale_"

    thing: ClassVar[str] = "row"

    def _at(self) -> str:
        return f" {self.at}" if self.at else super()._at()

    def summary(self) -> str:
        """Say in one line how many rows are certified and how large the radii are; these are rounded down."""
        return f"{super().summary()}, in {self.unit}" if len(self) else super().summary()


Answer = Callable[[NDArray[Any], NDArray[np.bool_]], NDArray[Any]]  # of classes, and where they are sure


def with_abstention(labels: NDArray[Any], abstain: Any) -> Answer:
    """Return a function that puts `abstain` where a class is not certified, in the labels' type or a wider one.

    labels: all of them. abstain: see `LinfDistClassifier.predict_certified`; ValueError if it is one of them.
    """
    kind = labels.dtype.kind
    text = kind == "U" or (kind == "O" and all(isinstance(each, str) for each in labels.tolist()))
    if abstain is None:
        abstain = ABSTAIN_TEXT if text else ABSTAIN_NUMBER if kind in "iuf" else None
    if any(abstain == each for each in labels.tolist()):
        raise ValueError(f"abstain = {abstain!r}: is one of the classes; choose another value")
    dtype = _common(labels.dtype, abstain)

    def answer(classes: NDArray[Any], sure: NDArray[np.bool_]) -> NDArray[Any]:
        return np.where(sure, classes.astype(dtype), np.array(abstain, dtype=dtype))

    return answer


def _common(labels: np.dtype[Any], abstain: Any) -> np.dtype[Any]:
    """Return a type of the labels' kind that holds both exactly; the object type if there is none."""
    if labels.kind == "U" and isinstance(abstain, str):
        return np.result_type(labels, np.array(abstain).dtype)
    number = abstain.item() if isinstance(abstain, np.generic) else abstain
    if isinstance(number, int | float) and not isinstance(number, bool):
        if labels.kind == "f" and (number != number or _holds(labels, number)):
            return labels
        both = np.result_type(labels, np.min_scalar_type(number))
        if labels.kind in "iu" and both.kind in "iu" and isinstance(number, int):
            return both
    return np.dtype(object)


def _holds(floats: np.dtype[Any], number: float) -> bool:
    """Return whether a float type holds a number exactly: Python compares whole numbers with floats exactly."""
    try:
        return float(floats.type(number)) == number
    except OverflowError:
        return False
