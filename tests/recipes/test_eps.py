import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from linfdist.eps import parse_eps


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0.3", Fraction(3, 10)),
        ("8/255", Fraction(8, 255)),
        ("8.8/255", Fraction(44, 1275)),
        (" 8 / 255 ", Fraction(8, 255)),
        (".5", Fraction(1, 2)),
        ("1.", Fraction(1)),
        ("1e-3", Fraction(1, 1000)),
        ("0", Fraction(0)),
        ("0e999999999", Fraction(0)),
        ("1", Fraction(1)),
    ],
)
def test_text_means_what_it_says(text, value):
    assert parse_eps(text) == value


def test_a_float_means_its_binary_value():
    assert parse_eps(0.3) == Fraction(5404319552844595, 18014398509481984) != parse_eps("0.3")
    assert parse_eps(np.float32(0.3)) == Fraction(float(np.float32(0.3)))
    assert parse_eps(Fraction(1, 3)) == Fraction(1, 3)
    assert parse_eps(1) == 1


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("8/0", "divides by zero"),
        ("8/0.0", "divides by zero"),
        ("-1", "is negative"),
        ("-1/255", "is negative"),
        ("nan", "is not a number"),
        ("inf", "is not a number"),
        ("", "is not a number"),
        ("1e400", "is more than 1"),
        ("1e401", "out of range"),
        ("1e999999999", "out of range"),
        ("1e-999999999", "out of range"),
        ("1/1e-999999999", "out of range"),
        ("0.3.1", "is not a number"),
        ("8/255/2", "is not a number"),
        ("1.0001", "is more than 1"),
        ("256/255", "is more than 1"),
        ("1_0/255", "is not a number"),
        ("٣", "is not a number"),
        ("1" * 101, "longer than 100 characters"),
        (math.nan, "must be finite"),
        (math.inf, "must be finite"),
        (-0.1, "is negative"),
        (2, "is more than 1"),
    ],
)
def test_impossible_values_are_refused_by_name(text, complaint):
    with pytest.raises(ValueError, match=complaint) as caught:
        parse_eps(text, name="radius")
    assert str(caught.value).startswith("radius = ")


@pytest.mark.parametrize("thing", [True, None, [0.3]])
def test_other_types_are_refused(thing):
    with pytest.raises(TypeError, match="must be text or a number"):
        parse_eps(thing)


@given(st.fractions(min_value=0, max_value=1, max_denominator=10**6))
def test_every_fraction_comes_back(value):
    assert parse_eps(str(value)) == value


@given(st.floats(min_value=0, max_value=1))
def test_the_shortest_text_of_a_float_is_within_reach_of_it(value):
    assert float(parse_eps(repr(value))) == value
    assert parse_eps(value) == Fraction(value)
