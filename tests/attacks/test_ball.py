"""The ball is exact: its bounds are the last floats inside, as rational numbers."""

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from linfdist.attacks.base import Ball, size
from linfdist.eps import parse_eps

RADII = ["8/255", "0.3", "1/3", "2/255", "1e-9", "0.1", "0", "1", "1e-30"]


def pixels(values, dtype):
    return torch.tensor(values, dtype=dtype)[:, None, None, None]


def neighbour(value, towards, dtype):
    return torch.nextafter(torch.tensor(value, dtype=dtype), torch.tensor(towards, dtype=dtype)).item()


def last_inside(x, bound, eps, end, dtype):
    """Nothing further from x on that side is inside."""
    if not (0 <= bound <= 1 and abs(Fraction(bound) - Fraction(x)) <= eps):
        return False
    return bound == end or abs(Fraction(neighbour(bound, end, dtype)) - Fraction(x)) > eps


def check(values, eps, dtype):
    x = pixels(values, dtype)
    ball = Ball.around(x, [eps])
    assert ball.lower.dtype == ball.upper.dtype == dtype
    for one, lower, upper in zip(*(t.flatten().tolist() for t in (x, ball.lower, ball.upper)), strict=True):
        assert last_inside(one, lower, eps, 0.0, dtype), (one, lower, eps)
        assert last_inside(one, upper, eps, 1.0, dtype), (one, upper, eps)


@pytest.mark.parametrize("text", RADII)
def test_bytes(text, dtype):
    check([k / 255 for k in range(256)], parse_eps(text), dtype)


@pytest.mark.parametrize("text", RADII)
def test_pixels_around_eps(text, dtype):
    """Where the lower bound is 0, nearly 0 or a denormal, and the difference cancels."""
    near = [float(parse_eps(text)) * (1 + k * 2.0**-e) for e in (22, 23, 24, 50, 52) for k in range(-3, 4)]
    values = [*near, *(1 - value for value in near), 0.0, 1.0, 1e-45, 5e-324, 2.0**-24, 1 - 2.0**-24]
    check([value for value in values if 0 <= value <= 1], parse_eps(text), dtype)


@given(
    x=st.floats(0, 1, width=32), numerator=st.integers(0, 10**6), denominator=st.integers(10**6, 10**7),
    double=st.booleans(),
)  # fmt: skip
def test_any_pixel_and_fraction(x, numerator, denominator, double):
    check([x], Fraction(numerator, denominator), torch.float64 if double else torch.float32)


def test_a_float_next_to_the_fraction_is_told_apart():
    """From x = 0 both neighbours of 8/255 are representable, and only one is inside."""
    x = torch.zeros(1, 1, 1, 1, dtype=torch.float64)
    for eps in (parse_eps("8/255"), parse_eps("0.3")):
        upper = Ball.around(x, [eps]).upper.item()
        assert Fraction(upper) < eps < Fraction(math.nextafter(upper, 1))


def test_each_image_has_its_own_eps():
    x = torch.full((3, 1, 1, 2), 0.5)
    ball = Ball.around(x, [Fraction(0), Fraction(1, 4), Fraction(1)])
    assert ball.lower[:, 0, 0].tolist() == [[0.5, 0.5], [0.25, 0.25], [0, 0]]
    assert ball.upper[:, 0, 0].tolist() == [[0.5, 0.5], [0.75, 0.75], [1, 1]]
    assert ball[torch.tensor([1])].eps.flatten().tolist() == [0.25]


@given(
    a=st.lists(st.floats(0, 1), min_size=3, max_size=3), b=st.lists(st.floats(0, 1), min_size=3, max_size=3)
)  # fmt: skip
def test_size_is_the_next_float64(a, b):
    one, other = (torch.tensor(values, dtype=torch.float64).reshape(1, 1, 1, 3) for values in (a, b))
    exact = max(abs(Fraction(p) - Fraction(q)) for p, q in zip(a, b, strict=True))
    found = size(one, other).item()
    assert Fraction(found) >= exact
    assert found == 0 or Fraction(math.nextafter(found, 0)) < exact


def test_size_of_float32_images_is_exact():
    x = torch.rand(50, 1, 2, 2)
    y = torch.rand(50, 1, 2, 2)
    exact = [max(abs(Fraction(p) - Fraction(q)) for p, q in zip(a, b, strict=True))
             for a, b in zip(x.flatten(1).tolist(), y.flatten(1).tolist(), strict=True)]  # fmt: skip
    assert [Fraction(value) for value in size(y, x).tolist()] == exact
    assert size(x[:0], x[:0]).shape == (0,)
