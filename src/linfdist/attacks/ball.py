"""The closed ℓ∞-ball around images, cut to [0, 1], in exact arithmetic: nothing outside it is ever called an attack."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import torch
from torch import Tensor

from ..eps import round_down


@dataclass(frozen=True)
class Ball:
    """The floats x' in [0, 1] with |x' - x| <= eps, as rational numbers: all those between the bounds.

    lower, upper: (B, C, H, W), in x's precision; eps: (B, 1, 1, 1), rounded, as a length of steps only.
    """

    lower: Tensor
    upper: Tensor
    eps: Tensor

    @staticmethod
    def around(x: Tensor, eps: Sequence[Fraction]) -> "Ball":
        """x (B, C, H, W) in [0, 1], float32 or float64; eps: one radius, or one for each image. x is always inside."""
        radius = _Radius.of(eps, x)
        rounded = radius.near.to(x.dtype).expand(len(x), 1, 1, 1)
        return Ball(_bound(x, radius, 0.0), _bound(x, radius, 1.0), rounded)

    def __getitem__(self, index: Tensor) -> "Ball":
        """The balls of some images."""
        return Ball(self.lower[index], self.upper[index], self.eps[index])

    def clip(self, images: Tensor) -> Tensor:
        """The nearest points inside. NaN stays NaN."""
        return torch.maximum(torch.minimum(images, self.upper), self.lower)


def size(images: Tensor, x: Tensor) -> Tensor:
    """Return max |images - x| of each image, (B,) float64, on the 0–1 scale.

    It is exact, or rounded up where float64 cannot hold it. Levels of 8-bit images are divided by 255 and rounded down,
    like the radii of exact networks, so that the two compare as whole levels do.
    """
    if images.dtype == torch.uint8:
        levels = (images.int() - x.int()).abs().flatten(1).amax(1).tolist()
        return torch.tensor([round_down(Fraction(each, 255)) for each in levels], dtype=torch.float64)
    near, rest = _difference(images.double(), x.double())
    rest = torch.where(near < 0, -rest, rest)
    near = near.abs()
    above = torch.where(rest > 0, torch.nextafter(near, torch.full_like(near, math.inf)), near)
    return above.flatten(1).amax(1) if above[0:1].numel() else above.new_zeros(len(above))


@dataclass(frozen=True)
class _Radius:
    """eps = near + rest: near rounded to the nearest float64, rest to the next one below. (B or 1, 1, 1, 1) each"""

    near: Tensor
    rest: Tensor

    @staticmethod
    def of(eps: Sequence[Fraction], x: Tensor) -> "_Radius":
        near = [float(each) for each in eps]
        rest = [round_down(each - Fraction(start)) for each, start in zip(eps, near, strict=True)]
        pair = torch.tensor([near, rest], dtype=torch.float64, device=x.device)[:, :, None, None, None]
        return _Radius(pair[0], pair[1])

    def holds(self, distance: tuple[Tensor, Tensor]) -> Tensor:
        """distance <= eps, exactly, for a distance that is the exact sum of its two parts, the first its rounding.

        Rounding keeps order, so only where both round to the same float64 do the rests decide.
        """
        near, rest = distance
        return (near < self.near) | ((near == self.near) & (rest <= self.rest))


def _bound(x: Tensor, radius: _Radius, end: float) -> Tensor:
    """The last float inside the ball, on the way from x to `end` (0 or 1), in x's own precision."""
    exact, sign = x.double(), 1.0 if end else -1.0
    limit = torch.full_like(x, end)

    def inside(point: Tensor) -> Tensor:
        near, rest = _difference(point.double(), exact)
        return radius.holds((sign * near, sign * rest))

    near, rest = _difference(exact, -sign * radius.near)
    guess = (near + (rest + sign * radius.rest)).clamp(0, 1).to(x.dtype)  # right up to an ulp or two
    guess = torch.where(inside(guess), guess, torch.nextafter(guess, x))
    guess = torch.where(inside(guess), guess, torch.nextafter(guess, x))
    further = torch.nextafter(guess, limit)
    guess = torch.where(inside(further), further, guess)
    return torch.where(inside(guess), guess, x)


def _difference(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """a - b, rounded, and what the rounding left out: their sum is exact (Knuth's TwoSum)."""
    near = a - b
    part = near - a
    return near, (a - (near - part)) - (b + part)
