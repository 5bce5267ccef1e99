"""Tables from rows, by hand."""

from fractions import Fraction

import pytest

from linfdist.report import tables
from linfdist.report.plots.curves import curve
from linfdist.report.plots.curves import gain as gain_of
from linfdist.runs.rows import Attempt, Counts, Row, count

EPS = Fraction(1, 10)
STANDS, FALLS = Attempt(False, 0, 0.1), Attempt(True, 5, 0.0625)
ROWS = (
    Row(0, 0, 0, 0.5, True, 0.25, {"pgd": STANDS, "strong": STANDS}),
    Row(1, 0, 0, 0.0625, False, 0.0625, {"pgd": STANDS, "strong": STANDS}),  # undecided
    Row(2, 1, 1, 0.03125, False, 0.0, {"pgd": STANDS, "strong": FALLS}),
    Row(3, 1, 1, 0.0, False, 0.0, {"pgd": FALLS, "strong": STANDS}),
    Row(4, 1, 2, 0.75, False, 0.75),  # an error: its radius counts nowhere
)


def test_counts():
    assert count(ROWS) == Counts(5, 4, 1, {"pgd": 3, "strong": 3}, 2, Fraction(19, 32) / 5)


def test_without_attacks_robust_is_unknown():
    rows = [Row(row.index, row.label, row.prediction, row.radius, row.certified) for row in ROWS]
    assert count(rows) == Counts(5, 4, 1, {}, None, Fraction(19, 32) / 5)
    assert tables.fates(count(rows)) == tables.Fates(certified=1, undecided=3, broken=0, misclassified=1)


def test_fates():
    assert tables.fates(count(ROWS)) == tables.Fates(certified=1, undecided=1, broken=2, misclassified=1)


def test_curve():
    xs, ys = curve(ROWS, EPS)
    assert xs == [0, 0.03125, 0.0625, 0.5, 0.5]
    assert ys == [80, 60, 40, 20, 0]
    assert curve(ROWS, EPS, margin=True) == ([0, 0.0625, 0.25, 0.25], [80, 40, 20, 0])


def test_curve_counts_a_certified_image_up_to_eps():
    """A radius rounded down to a float may be just below an eps that was proved exactly."""
    xs, ys = curve([Row(0, 0, 0, 0.09999999999999999, True)], EPS)
    assert (xs, ys) == ([0, 0.1, 0.1], [100, 100, 0])


def test_curve_of_nothing_correct():
    assert curve([Row(0, 0, 1, 0.5, False)], EPS) == ([0, 0], [0, 0])


def test_by_class():
    first, second = tables.by_class(ROWS)
    assert first == tables.ClassLine(0, 2, 2, 1, (0.0625, 0.5))
    assert second == tables.ClassLine(1, 3, 2, 0, (0.0, 0.03125))
    assert (first.median, second.median) == (0.0625, 0.0)  # of 0 (the error), 0, 0.03125


def test_confusion():
    matrix = tables.confusion(ROWS, 3)
    assert matrix == [[2, 0, 0], [0, 2, 1], [0, 0, 0]]
    assert tables.worst_confusions(ROWS) == [(1, 2, 1)]


def test_gain():
    gain = gain_of(ROWS, EPS, "box")
    assert gain is not None
    assert gain.pairs == ((0.25, 0.5), (0.0625, 0.0625), (0.0, 0.03125), (0.0, 0.0))
    assert (gain.mean_margin, gain.mean_radius, gain.certified_by_margin) == (Fraction(5, 64), Fraction(19, 128), 1)


@pytest.mark.parametrize("rows", [ROWS, ROWS[4:]], ids=["the margin itself", "nothing correct"])
def test_no_gain(rows):
    assert gain_of(rows, EPS, "margin" if rows is ROWS else "box") is None
