"""The shallow form, one dist layer and a maximum through scattered data, and bounds of the values between them."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ..nn import Stack
from ..ops.dist import dist
from .domain import Domain, Intervals
from .function import DistFunction
from .maps import Unit, dist_layer, enough, layer

CHUNK = 1 << 22  # distances at once


@dataclass(frozen=True, eq=False)
class Interpolation:
    """Bounds of a function that is 1-Lipschitz in ℓ∞ from its values at some points (McShane 1934, Whitney 1934).

    lower(x) = max_i v[i] − ‖x − p[i]‖∞ <= f(x) <= upper(x) = min_i v[i] + ‖x − p[i]‖∞

    Both are 1-Lipschitz and pass through the data, so they are the tightest bounds there are; the middle between them
    has the smallest worst-case error of all estimates, which is half their distance. points: (N, d) float64; values:
    (N,) float64.
    """

    points: Tensor
    values: Tensor

    def lower(self, x: Tensor) -> Tensor:
        """Return the least value at x (B, d) that a 1-Lipschitz function through the data can have: (B,) float64."""
        return self._extend(x)[0]

    def upper(self, x: Tensor) -> Tensor:
        """Return the largest value at x (B, d) that a 1-Lipschitz function through the data can have: (B,) float64."""
        return self._extend(x)[1]

    def __call__(self, x: Tensor) -> Tensor:
        """Return the middle between both at points x (B, d): (B,) float64."""
        lower, upper = self._extend(x)
        return (lower + upper) / 2

    def error(self, x: Tensor) -> Tensor:
        """Bound the distance of the middle from any 1-Lipschitz function through the data: (B,) float64."""
        lower, upper = self._extend(x)
        return (upper - lower) / 2

    def network(self, domain: Intervals, dtype: torch.dtype = torch.float32) -> DistFunction:
        """Build the lower envelope as a dist net of two layers: one neuron for each point, then their maximum.

        y[i] = ‖x − p[i]‖∞ − v[i], then max_i −y[i].
        """
        box = Domain.of(domain)
        if box.inputs != self.points.shape[1]:
            raise ValueError(f"the domain has {box.inputs} intervals, the points have {self.points.shape[1]} numbers")
        values = float(self.values.abs().max())
        bound = box.size + float(self.points.abs().max()) + values
        first = dist_layer(self.points, -self.values, dtype)
        terms = dict.fromkeys(range(len(self.points)), (-1, 0.0))
        last = layer([Unit(terms)], len(self.points), enough(bound), dtype)
        return DistFunction(Stack(first, last).eval(), box, bound)

    def _extend(self, x: Tensor) -> tuple[Tensor, Tensor]:
        if x.dim() != 2 or x.shape[1] != self.points.shape[1]:
            raise ValueError(f"need points (B, {self.points.shape[1]}), got {tuple(x.shape)}")
        parts = [(x.new_empty(0, dtype=torch.float64),) * 2]
        for few in x.double().split(max(1, CHUNK // len(self.points))):
            apart = dist(few, self.points)  # (b, N)
            parts.append(((self.values - apart).amax(1), (self.values + apart).amin(1)))
        lower, upper = (torch.cat(each) for each in zip(*parts, strict=True))
        return lower, upper


def interpolate(points: Tensor, values: Tensor) -> Interpolation:
    """Bound every 1-Lipschitz function through the data: values (N,) at points (N, d).

    Raises ValueError if no such function exists; it names two points between which the values change by more than their
    distance. If the Lipschitz constant of your function is not 1, divide the values by it first.
    """
    if points.dim() != 2 or values.shape != points.shape[:1] or not len(values) or not points.shape[1]:
        raise ValueError(
            f"need at least one point (N, d) and its value (N,), got {tuple(points.shape)} and {tuple(values.shape)}"
        )
    for name, each in (("points", points), ("values", values)):
        if not each.isfinite().all():
            raise ValueError(f"{name} must be finite numbers, got {each[~each.isfinite()][0].item()}")
    check_lipschitz(points.double(), values.double(), room(points, values))
    return Interpolation(points.detach().double(), values.detach().double())


def room(points: Tensor, values: Tensor) -> float:
    """Bound what rounding, in the precision of the values, may add to the difference of two of them."""
    unit = torch.finfo(values.dtype).eps if values.is_floating_point() else torch.finfo(torch.float64).eps
    return 8 * unit * float(points.abs().max() + values.abs().max())


def check_lipschitz(points: Tensor, values: Tensor, room: float) -> None:
    """Raise ValueError if values (N,) differ by more than the distance of their points (N, d), and by more than `room`.

    They do not differ by more if the lower envelope passes through all of them.
    """
    for start, few in zip(
        range(0, len(points), rows := max(1, CHUNK // len(points))), points.split(rows), strict=False
    ):
        apart = dist(few, points)  # (b, N)
        least, other = (values - apart).max(1)
        excess = least - values[start : start + len(few)]
        if (excess > room).any():
            here = int(excess.argmax())
            one, two = start + here, int(other[here])
            change, distance = float((values[one] - values[two]).abs()), float(apart[here, two])
            factor = f"divide it by {change / distance:.6g} or more" if distance > 0 else "it has two values there"
            raise ValueError(
                f"not 1-Lipschitz in l_inf: from {points[one].tolist()} to {points[two].tolist()}, a distance of "
                f"{distance:.6g}, the value changes by {change:.6g}; {factor}"
            )
