"""What is proved is never rounded up, what attacks left standing never down."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linfdist.report.digits import down, nearest, percent, up, written


@pytest.mark.parametrize(
    ("value", "low", "middle", "high"),
    [
        (Fraction(100 * 8883, 10000), "88.83", "88.83", "88.83"),  # exact: nothing to round
        (Fraction(200, 3), "66.66", "66.67", "66.67"),
        (Fraction(99999, 1000), "99.99", "100.00", "100.00"),  # a certified 100.00 would be a lie
        (Fraction(1, 1000), "0.00", "0.00", "0.01"),
        (0.3, "0.29", "0.30", "0.30"),  # the float is a little less than 3/10
    ],
)
def test_by_hand(value, low, middle, high):
    assert (down(value, 2), nearest(value, 2), up(value, 2)) == (low, middle, high)


@given(st.integers(0, 10**6), st.integers(1, 10**6), st.integers(0, 5))
def test_the_text_is_on_the_right_side(count, n, digits):
    value = percent(count, n)
    assert Fraction(down(value, digits)) <= value <= Fraction(up(value, digits))
    assert Fraction(up(value, digits)) - Fraction(down(value, digits)) <= Fraction(1, 10**digits)


@given(st.integers(0, 10_000))
def test_percentages_in_files_are_decimals(count):
    """90.27 as a float is less than 90.27, and 0.57 more: neither is to be seen."""
    share = float(Fraction(count, 100))
    assert down(written(share), 2) == up(written(share), 2) == f"{share:.2f}"
