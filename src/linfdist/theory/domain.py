"""Boxes that functions live on, and how they become images."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

Intervals = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Domain:
    """The box of all points x (d,) with lower[i] <= x[i] <= upper[i].

    Networks of this package take images with pixels in [0, 1]. So a point becomes an image (d, 1, 1), one channel for
    each coordinate: its pixels are (x - corner) / side. One side for all coordinates keeps ℓ∞-balls balls; it is the
    smallest power of two that the box fits into, which makes the division exact.
    """

    lower: tuple[float, ...]
    upper: tuple[float, ...]

    @classmethod
    def of(cls, intervals: Intervals) -> "Domain":
        """Read one interval (low, high) for each coordinate; raise ValueError that names the wrong one and why."""
        try:
            pairs = [(float(low), float(high)) for low, high in intervals]
        except (TypeError, ValueError):
            raise TypeError(
                f"domain = {str(intervals)[:80]}: must be one interval (low, high) for each input, such as "
                "[(0, 1), (0, 1)]"
            ) from None
        if not pairs:
            raise ValueError("domain = []: must have at least one interval (low, high), one for each input")
        for place, (low, high) in enumerate(pairs):
            if not (math.isfinite(low) and math.isfinite(high)):
                raise ValueError(f"domain[{place}] = ({low}, {high}): its ends must be finite numbers")
            if not low < high:
                raise ValueError(f"domain[{place}] = ({low}, {high}): is empty; its low end must be below its high end")
        lower, upper = zip(*pairs, strict=True)
        return cls(lower, upper)

    @property
    def inputs(self) -> int:
        return len(self.lower)

    @property
    def side(self) -> float:
        """The smallest power of two that no interval is longer than."""
        longest = max(high - low for low, high in zip(self.lower, self.upper, strict=True))
        mantissa, exponent = math.frexp(longest)  # a logarithm would be rounded
        return math.ldexp(1.0, exponent - (mantissa == 0.5))

    @property
    def size(self) -> float:
        """The largest magnitude of a coordinate, anywhere in the cube that corresponds to images."""
        return max(max(abs(low), abs(low + self.side)) for low in self.lower)

    def check(self, x: Tensor) -> None:
        """Raise unless x are points (B, d) of the box."""
        if x.dim() != 2 or x.shape[1] != self.inputs:
            raise ValueError(f"need points (B, {self.inputs}), got {tuple(x.shape)}")
        lower, upper = (torch.tensor(ends, dtype=x.dtype, device=x.device) for ends in (self.lower, self.upper))
        outside = ~((x >= lower) & (x <= upper)).all(1)  # NaN is outside
        if outside.any():
            place = int(outside.nonzero()[0])
            raise ValueError(f"point {place}, {x[place].tolist()}, is outside the domain {list(self.intervals())}")

    def intervals(self) -> list[tuple[float, float]]:
        return list(zip(self.lower, self.upper, strict=True))

    def centres(self, reach: float) -> tuple[Tensor, Tensor]:
        """Cut the box into equal cells of side at most 2 `reach`; return their centres and corners, float64.

        (N, d) and (M, d); every point of the box is within `reach` of a centre.
        """
        middles, corners = [], []
        for (low, high), count in zip(self.intervals(), self.cells(reach), strict=True):
            ends = torch.linspace(low, high, count + 1, dtype=torch.float64)
            corners.append(ends)
            middles.append((ends[1:] + ends[:-1]) / 2)
        return torch.cartesian_prod(*middles).reshape(-1, self.inputs), torch.cartesian_prod(*corners).reshape(
            -1, self.inputs
        )

    def cells(self, reach: float) -> list[int]:
        """Count the cells along each coordinate."""
        return [max(1, math.ceil((high - low) / (2 * reach))) for low, high in self.intervals()]
