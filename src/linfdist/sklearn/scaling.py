"""From the user's units to the network's: a map that keeps the order of every feature, in floating point as well.

The network takes numbers of [0, 1], as float32. A feature x, a float64, becomes

    u = (x − low) / span,   cut to [0, 1],   0 if it is less than 2^-40,   rounded to float32.

Each step is an operation that is rounded correctly, or a comparison, so each is monotone: x <= x′ gives u <= u′ for the
numbers that are computed, whatever was rounded on the way and however much of x cancels against low. A ball in the
user's units is an interval of each feature; the images of its two ends therefore enclose the image of every float64
inside, and no analysis of errors is needed. Only the two ends themselves need care: they are rounded outwards, and the
radius around u that must reach both is rounded up.

The smallest numbers become 0 because threads may flush denormal numbers to zero, or not: as no span is below 2^-960,
what could be flushed is far below 2^-40 after the division.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Floats = NDArray[np.float64]

NARROWEST = 2.0**-960  # a feature that varies by less is taken for constant
SMALLEST = 2.0**-40  # of the network's inputs that are not 0
WHOLE = 2**53  # float64 holds all whole numbers up to here
DENORMAL = 2.0**-1022  # below this, a number may be flushed to zero


@dataclass(frozen=True, eq=False)
class Scaling:
    """One map for each feature, or one for all pixels of images.

    low: what becomes 0. span: how much more becomes 1; 0 for a feature that is left out, because it is constant in the
    training data. scale: what eps = 1 means, in the user's units; 0 for features that stay as they are. All are float64
    (features,), or () for images. ratio: span is at least `ratio` times scale, so a radius r of the network holds all
    changes by up to r · ratio · scale.
    """

    low: Floats
    span: Floats
    scale: Floats
    ratio: float

    @staticmethod
    def of(x: Floats, scale: Any, levels: bool = False, fixed: NDArray[np.bool_] | None = None) -> "Scaling":
        """Measure training data x: (N, features), or images (N, H, W[, C]), which have one range for all pixels.

        scale: "range", or how much eps = 1 is, in the units of x: one number, or one for each feature. Spans are made
        proportional to it. levels: whether x are 8-bit images, whose range is 0 to 255. fixed: (features,) which ones
        stay as they are: their scale is 0, and their span is their range.
        """
        axes = 0 if x.ndim == 2 else None
        lowest, highest = np.asarray(x.min(axes)), np.asarray(x.max(axes))
        if levels:
            lowest, highest = np.zeros(()), np.full((), 255.0)
        with np.errstate(over="ignore"):
            ranges = highest - lowest
        units = ranges if isinstance(scale, str) and scale == "range" else _given(scale, ranges.shape)
        varies = ranges >= NARROWEST
        moves = np.ones_like(varies) if fixed is None else ~fixed
        with np.errstate(over="ignore", invalid="ignore", divide="ignore", under="ignore"):
            ratio = float(np.max(ranges / units, where=varies & moves, initial=0.0))
            span = np.where(varies, np.where(moves, np.maximum(ratio * units, ranges), ranges), 0.0)
            low = np.where(span == ranges, lowest, lowest + ranges / 2 - span / 2)  # narrow ones lie in the middle
            low = np.minimum(low, lowest)  # rounding must leave none of the training data outside
            span = np.where(varies, np.maximum(span, highest - low), 0.0)
        sound = np.isfinite(low) & np.isfinite(span) & (~varies | (span >= ranges * 0.99))
        if not (np.isfinite(ratio) and sound.all()):
            worst = int(np.argmax(ranges / units)) if ranges is not units else int(np.argmax(ranges))
            raise ValueError(
                f"X: feature {worst} goes from {float(lowest.flat[worst])!r} to {float(highest.flat[worst])!r}, which "
                "is more than float64 can measure with this scale: rescale it first"
            )
        return Scaling(low, span, np.where(moves & (varies | (units is not ranges)), units, 0.0), ratio)

    @staticmethod
    def of_changes(x: Floats, change: Floats) -> "Scaling":
        """Measure a table x (N, features) whose features change by up to `change`: that is eps = 1.

        Spans are the ranges: with spans in proportion to the changes, a feature that changes by little in its range
        would leave no room for the others.
        """
        ranges = Scaling.of(x, "range")
        moves = (change > 0) & (ranges.span > 0)
        with np.errstate(over="ignore"):
            ratio = float(np.min(ranges.span / np.where(moves, change, 1.0), where=moves, initial=np.inf))
        return replace(ranges, scale=change, ratio=1.0 if ratio == np.inf else ratio)

    @property
    def even(self) -> bool:
        """Return whether one radius of the network is the same eps for all features."""
        with np.errstate(over="ignore"):
            return bool((self.span <= self.ratio * self.scale * (1 + 2.0**-20)).all())

    def inputs(self, x: Floats) -> NDArray[np.float32]:
        """Map x to the network's inputs: float32 in [0, 1], monotone in x. Infinity is allowed."""
        with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
            u = np.clip((x - self.low) / self.span, 0.0, 1.0)
        u = np.where((u >= SMALLEST) & (self.span > 0), u, 0.0)  # NaN of features that are left out becomes 0, too
        return u.astype(np.float32)

    def change(self, eps: Floats) -> Floats:
        """Return eps · scale, rounded up: how far features change, in the user's units. eps >= 0 broadcasts to x."""
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            change = np.nextafter(eps * self.scale, np.inf) + DENORMAL
            return np.where((eps > 0) & (self.scale > 0), change, 0.0)

    def box(self, x: Floats, down: Floats, up: Floats) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Lowest and highest inputs, of x's shape, between which are the inputs of every float64 x′ of the box

            x − down <= x′ <= x + up,   feature by feature and in exact arithmetic.

        down, up >= 0 broadcast to x, and are 0 or normal numbers; infinity: a feature may become anything there.
        """
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            lower = np.where(down > 0, np.nextafter(x - down, -np.inf), x)
            upper = np.where(up > 0, np.nextafter(x + up, np.inf), x)
        return self.inputs(lower), self.inputs(upper)

    def outside(self, x: Floats) -> NDArray[np.bool_]:
        """Mark the numbers that lie outside [low, low + span], where the map is constant."""
        with np.errstate(over="ignore"):
            return (self.span > 0) & ((x < self.low) | (x - self.low > self.span))


def reach(centre: NDArray[np.float32], lower: NDArray[np.float32], upper: NDArray[np.float32]) -> Tensor:
    """Return radii around inputs that reach both ends of a box, rounded up: float64."""
    u = centre.astype(np.float64)
    far = np.maximum(upper - u, u - lower)
    return torch.from_numpy(np.where(far > 0, np.nextafter(far, np.inf).clip(max=1.0), 0.0))


def check_unmasked(values: Any, name: str) -> None:
    """Raise TypeError for a masked array, whose mask would be lost."""
    if isinstance(values, np.ma.MaskedArray):
        raise TypeError(f"{name}: is a masked array; fill in what is masked first (numpy.ma.filled), or leave it out")


def check_exact(values: Any, name: str) -> None:
    """Raise where numbers would be rounded to float64, or lose a mask: a proof would be about other numbers.

    Tables are checked column by column, because the common type of all columns may have rounded them already. Data that
    are not numbers are left to scikit-learn.
    """
    check_unmasked(values, name)
    if hasattr(values, "columns") and hasattr(values, "dtypes"):
        for column in dict.fromkeys(values.columns):
            check_exact(values[column], f"{name}[{column!r}]")
        return
    try:
        array = np.asarray(values)
        kind, size = array.dtype.kind, array.dtype.itemsize
        floats = array.astype(np.float64) if kind in "fO" else np.empty(())
    except (TypeError, ValueError, OverflowError):
        return
    if kind in "iu" and size == 8:
        rounded = (array > WHOLE) | (array < -WHOLE if kind == "i" else False)
    elif kind == "O" or (kind == "f" and size > 8):
        rounded = np.asarray(floats.astype(array.dtype) != array, dtype=bool) & ~np.isnan(floats)  # compared exactly
    else:
        return
    if rounded.any():
        raise ValueError(
            f"{name}: holds {array[rounded].flat[0]!r}, beyond the numbers that float64 holds exactly: rescale or "
            "round it first, and certify the result"
        )


def _given(scale: Any, shape: tuple[int, ...]) -> Floats:
    if isinstance(scale, str):
        raise ValueError(f"scale = {scale!r}: must be 'range', a number, or one number for each feature")
    check_exact(scale, "scale")
    try:
        units = np.broadcast_to(np.asarray(scale, dtype=np.float64), shape).copy()
    except (TypeError, ValueError):
        wanted = f"{shape[0]} numbers, one for each feature" if shape else "one number for all pixels"
        raise ValueError(f"scale = {scale!r}: must be 'range', a number, or {wanted}") from None
    if not (np.isfinite(units) & (units > 0)).all():
        raise ValueError(f"scale = {scale!r}: every number must be finite and more than 0")
    return units
