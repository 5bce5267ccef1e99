"""Linear relaxation of tanh: one straight line above it and one below."""

from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

SLACK = 2.0**-40  # outweighs the rounding of an intercept, all of whose terms are at most 20
SATURATED = 20.0  # from here on |tanh| = 1 up to 2^-56
TABLE = 2048


class Lines(NamedTuple):
    """lower_slope · h + lower_offset <= tanh(h) <= upper_slope · h + upper_offset, for all h of an interval."""

    lower_slope: Tensor
    lower_offset: Tensor
    upper_slope: Tensor
    upper_offset: Tensor


def tanh_lines(lower: Tensor, upper: Tensor) -> Lines:
    """Return lines that enclose tanh on [lower, upper], float64 of one shape; valid in exact arithmetic.

    tanh is odd, so the line below is the line above on [−upper, −lower], reflected in the origin.
    """
    lower_slope, offset = _line_above(-upper, -lower)
    return Lines(lower_slope, -offset, *_line_above(lower, upper))


def _line_above(lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    """Return slope and offset of a line above tanh.

    Any slope is valid, as the offset is the largest tanh(h) − slope · h of the interval. With 0 <= slope <= 1 that is
    attained at an end or, where tanh is concave, at h* > 0 with tanh′(h*) = slope. Around h* the difference is flat, so
    SLACK covers what the rounding of h* costs.
    """
    slope = _slope_above(lower, upper)
    turning = torch.atanh((1 - slope).sqrt()).clamp(max=SATURATED)
    turning = torch.minimum(torch.maximum(turning, lower), upper)
    offset = torch.stack([h.tanh() - slope * h for h in (lower, upper, turning)]).amax(0)
    return slope, offset + SLACK * (1 + slope * torch.maximum(lower.abs(), upper.abs()))


def _slope_above(lower: Tensor, upper: Tensor) -> Tensor:
    """Return the slope of the line above tanh with the least area below it.

    It is a chord, or a tangent at h >= 0 that stays above tanh(lower). The tangent at the middle is best if it stays
    above; the chord is best where every such tangent would touch tanh beyond `upper`.
    """
    middle = (lower + upper) / 2
    at_lower, at_upper = lower.tanh(), upper.tanh()
    width = upper - lower
    chord = torch.where(width > 2**-20, (at_upper - at_lower) / width, _derivative(middle))
    tangent = _derivative(torch.maximum(_touching(lower), middle))
    slope = torch.where(chord <= _derivative(upper), chord, tangent)
    return torch.where(lower >= 0, _derivative(middle), torch.where(upper <= 0, chord, slope)).clamp(0.0, 1.0)


def _touching(lower: Tensor) -> Tensor:
    """Approximate the h > 0 where the tangent of tanh through (lower, tanh(lower)) touches it, for lower < 0."""
    share = lower.clamp(max=0.0).abs() / (1 - lower.clamp(max=0.0)) * TABLE
    place = share.long().clamp(0, TABLE - 1)
    table = _touching_points().to(lower.device)
    return torch.lerp(table[place], table[place + 1], (share - place).clamp(0.0, 1.0))


@cache
def _touching_points() -> Tensor:
    """Tabulate the points of `_touching` for lower = −s / (1 − s), s = 0, 1/TABLE, ..., 1, by bisection.

    The last one, where `lower` would be −infinity, is taken half a step earlier.
    """
    share = torch.arange(TABLE + 1, dtype=torch.float64, device="cpu") / TABLE
    share[-1] = 1 - 0.5 / TABLE
    lower = -share / (1 - share)
    left, right = torch.zeros_like(lower), -lower
    for _ in range(60):
        touch = (left + right) / 2
        too_near = touch.tanh() + _derivative(touch) * (lower - touch) < lower.tanh()
        left, right = torch.where(too_near, touch, left), torch.where(too_near, right, touch)
    return right


def _derivative(h: Tensor) -> Tensor:
    return 1 - h.tanh().square()
