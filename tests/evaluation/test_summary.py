"""The summary, by hand."""

from fractions import Fraction

import pytest

from linfdist.evaluation import summarise

from .files import row


def test_by_hand():
    rows = [
        row(0, radius=0.5, certified=True),
        row(1, radius=0.1),
        row(2, prediction=0, radius=9.0),  # an error counts as 0
        row(3, label=0, prediction=0, radius=0.0),
    ]
    assert summarise(rows, "8/255") == {
        "n": 4, "eps": "8/255", "clean": 75, "robust": None, "certified": 25, "mean_radius": pytest.approx(0.15),
        "attacks": {},
    }  # fmt: skip


def test_attacks():
    held, fell = (False, 1, 0.1), (True, 0, 0.1)
    rows = [
        row(0, attacks={"pgd": held, "strong": held}),
        row(1, attacks={"pgd": held, "strong": fell}),
        row(2, attacks={"pgd": fell, "strong": held}),  # survives the one, not the other
        row(3, prediction=0),  # an error is broken by all
        row(4, attacks={"pgd": held, "strong": fell}),
    ]
    summary = summarise(rows, "0.1")
    assert summary["attacks"] == {"pgd": 60, "strong": 40}
    assert summary["robust"] == 20
    assert summary["clean"] == 80


def test_all_errors():
    """Nothing was attacked: that is no robustness of 100 %."""
    summary = summarise([row(0, prediction=0)], "0.1", ["pgd"])
    assert summary["attacks"] == {"pgd": 0}
    assert summary["robust"] == 0
    assert summarise([row(0, prediction=0)], "0.1")["robust"] is None  # the rows do not say what was run


def test_an_attack_that_is_missing_from_a_row():
    with pytest.raises(ValueError, match="image 7 is classified correctly, but its row has no result of attack 'pgd'"):
        summarise([row(7)], "0.1", ["pgd"])


def test_nothing_is_nothing():
    summary = summarise([], "0.1", ["pgd"])
    assert summary == {
        "n": 0, "eps": "0.1", "clean": None, "robust": None, "certified": None, "mean_radius": None,
        "attacks": {"pgd": None},
    }  # fmt: skip


@pytest.mark.parametrize("radii", [[0.1] * 10, [0.3, 0.1, 0.7], [1 / 3] * 7, [1e-20, 1.0, 1e-20]])
def test_the_mean_radius_is_rounded_down(radii):
    mean = summarise([row(k, radius=radius) for k, radius in enumerate(radii)], "0.1")["mean_radius"]
    exact = sum(map(Fraction, radii)) / len(radii)
    assert Fraction(mean) <= exact
    assert mean == pytest.approx(float(exact), rel=1e-15)
