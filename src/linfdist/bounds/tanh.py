"""Straight lines above and below tanh."""

from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

SLACK = 2.0**-40  # outweighs the rounding of an intercept, all of whose terms are at most 20
SATURATED = 20.0  # |tanh| = 1 to 2^-56 from here on
TABLE = 2048


class Lines(NamedTuple):
    """slope · h + lower_offset <= tanh(h) and so on, for all h of an interval."""

    lower_slope: Tensor
    lower_offset: Tensor
    upper_slope: Tensor
    upper_offset: Tensor


def tanh_lines(lower: Tensor, upper: Tensor) -> Lines:
    """Lines that enclose tanh on [lower, upper], float64 of one shape; valid in exact arithmetic.

    tanh is odd, so a line below is a line above, turned round.
    """
    lower_slope, offset = _line_above(-upper, -lower)
    return Lines(lower_slope, -offset, *_line_above(lower, upper))


def _line_above(lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    """Any slope will do, for the offset is then the largest tanh(h) − slope · h of the interval.

    With 0 <= slope <= 1 that is attained at an end or, where tanh is concave, at h* > 0 with tanh′(h*) = slope. Around
    h* the difference is flat, so a rounded h* costs nothing that SLACK does not cover.
    """
    slope = _slope_above(lower, upper)
    turning = torch.atanh((1 - slope).sqrt()).clamp(max=SATURATED)
    turning = torch.minimum(torch.maximum(turning, lower), upper)
    offset = torch.stack([h.tanh() - slope * h for h in (lower, upper, turning)]).amax(0)
    return slope, offset + SLACK * (1 + slope * torch.maximum(lower.abs(), upper.abs()))


def _slope_above(lower: Tensor, upper: Tensor) -> Tensor:
    """The slope of the line with the least area below it: a chord, or a tangent at h >= 0 that stays above tanh(lower).

    A tangent at the middle is best, if it may be one; the chord is the answer where no tangent reaches that far right.
    """
    middle = (lower + upper) / 2
    at_lower, at_upper = lower.tanh(), upper.tanh()
    width = upper - lower
    chord = torch.where(width > 2**-20, (at_upper - at_lower) / width, _derivative(middle))
    tangent = _derivative(torch.maximum(_touching(lower), middle))
    slope = torch.where(chord <= _derivative(upper), chord, tangent)
    return torch.where(lower >= 0, _derivative(middle), torch.where(upper <= 0, chord, slope)).clamp(0.0, 1.0)


def _touching(lower: Tensor) -> Tensor:
    """Nearly the h > 0 where the tangent of tanh through (lower, tanh(lower)) touches, for lower < 0."""
    share = lower.clamp(max=0.0).abs() / (1 - lower.clamp(max=0.0)) * TABLE
    place = share.long().clamp(0, TABLE - 1)
    table = _touching_points().to(lower.device)
    return torch.lerp(table[place], table[place + 1], (share - place).clamp(0.0, 1.0))


@cache
def _touching_points() -> Tensor:
    """The points for lower = −s / (1 − s), s = 0, 1/TABLE, ..., 1 (the last one as if half way): by bisection."""
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
