"""What is proved is never rounded up, and what attacks left standing never down."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linfdist.eps import as_text, down, nearest, parse_eps, percent, round_down, round_up, share, up, written


@pytest.mark.parametrize(
    ("value", "low", "middle", "high"),
    [
        (Fraction(100 * 8883, 10000), "88.83", "88.83", "88.83"),  # exact: nothing to round
        (Fraction(200, 3), "66.66", "66.67", "66.67"),
        (Fraction(99999, 1000), "99.99", "100.00", "100.00"),  # a certified 100.00 would be a lie
        (Fraction(1, 1000), "0.00", "0.00", "0.01"),
        (0.3, "0.29", "0.30", "0.30"),  # the float is a little less than 3/10
        (Fraction(-1, 300), "-0.01", "0.00", "0.00"),
    ],
)
def test_by_hand(value, low, middle, high):
    assert (down(value, 2), nearest(value, 2), up(value, 2)) == (low, middle, high)


def test_without_digits_after_the_point():
    assert (down(2.5, 0), nearest(2.6, 0), up(2.5, 0)) == ("2", "3", "3")


@given(st.integers(0, 10**6), st.integers(1, 10**6), st.integers(0, 5))
def test_the_text_is_on_the_right_side(count, n, digits):
    value = percent(count, n)
    assert Fraction(down(value, digits)) <= value <= Fraction(up(value, digits))
    assert Fraction(up(value, digits)) - Fraction(down(value, digits)) <= Fraction(1, 10**digits)


@given(st.integers(0, 10_000))
def test_percentages_in_files_are_decimals(count):
    """90.27 as a float is less than 90.27, and 0.57 is more: neither is to be seen."""
    shown = float(Fraction(count, 100))
    assert down(written(shown), 2) == up(written(shown), 2) == f"{shown:.2f}"


def test_a_percentage_of_images_is_a_share_of_them():
    """97.1 is no float, but a number with two digits all the same."""
    for count in range(1001):
        exact = share(100 * count / 1000, 1000)
        assert exact == percent(count, 1000)
        assert down(exact, 2) == up(exact, 2) == f"{count // 10}.{count % 10}0"


@given(st.fractions(-10, 10))
def test_the_nearest_floats_on_either_side(exact):
    low, high = round_down(exact), round_up(exact)
    assert Fraction(low) <= exact <= Fraction(high)
    assert high == low or high == math.nextafter(low, math.inf)


def test_a_float_is_its_own_rounding():
    assert round_down(Fraction(3, 4)) == round_up(Fraction(3, 4)) == 0.75
    assert round_down(Fraction(1, 10)) < Fraction(1, 10) <= round_up(Fraction(1, 10))


@pytest.mark.parametrize(
    "eps", ["8/255", "0.30", 0, 1, 0.3, 0.25, 1e-7, Fraction(8, 255), Fraction(10**8, 3 * 10**8 + 1)]
)
def test_a_radius_as_text_means_the_same(eps):
    assert parse_eps(as_text(eps)) == parse_eps(eps)
    assert as_text(eps) == eps or not isinstance(eps, str)
