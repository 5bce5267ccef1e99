"""The map from the user's units keeps the order, and a box of the user's is inside the box that is proved."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("sklearn", reason="the estimator needs scikit-learn")

from linfdist.sklearn.scaling import NARROWEST, Scaling, reach

OFFSETS = [0.0, 1.0, -3.7, 1e9, -1e15, 1e-300, 1e200, 2.0**52]
RANGES = [1.0, 1e-3, 1e-12, 1e-280, 1e150, 7.0]


def table(offset, width, seed, rows=16):
    generator = np.random.default_rng(seed)
    columns = [offset + width * generator.random(rows), generator.integers(0, 5, rows), np.full(rows, offset)]
    return np.stack([column.astype(np.float64) for column in columns], 1)


def radii(scaling, data, eps):
    """How far the network's inputs may move if features move by eps · scale."""
    change = scaling.change(np.asarray(eps))
    return reach(scaling.inputs(data), *scaling.box(data, change, change)).numpy()


def last_float(start, change, up):
    """The last float64 x′ on one side with |x′ − start| <= change, in exact arithmetic."""
    end = math.inf if up else -math.inf
    try:
        moved = float(Fraction(start) + (change if up else -change))
    except OverflowError:
        return math.copysign(np.finfo(np.float64).max, end)
    while abs(Fraction(moved) - Fraction(start)) > change:
        moved = math.nextafter(moved, start)
    return moved


@settings(max_examples=60, deadline=None)
@given(
    offset=st.sampled_from(OFFSETS), width=st.sampled_from(RANGES), seed=st.integers(0, 10**6),
    eps=st.sampled_from([0.0, 5e-324, 1e-30, 1e-9, 0.01, 0.3, 1.0]), scale=st.sampled_from(["range", 1.0, 1e-3]),
    flush=st.booleans(),
)  # fmt: skip
def test_every_float_of_the_users_box_is_in_the_box_that_is_proved(offset, width, seed, eps, scale, flush):
    data = table(offset, width, seed)
    if scale != "range" and width < 1e-100:
        scale = width
    scaling = Scaling.of(data, scale)
    torch.set_flush_denormal(flush)
    try:
        inputs, around = scaling.inputs(data), radii(scaling, data, eps)
    finally:
        torch.set_flush_denormal(False)
    for row in range(4):
        for column in range(data.shape[1]):
            change = Fraction(eps) * Fraction(float(scaling.scale[column]))
            centre = Fraction(float(inputs[row, column]))
            for up in (False, True):
                moved = data[row].copy()
                moved[column] = last_float(float(data[row, column]), change, up)
                there = Fraction(float(scaling.inputs(moved[None])[0, column]))
                assert abs(there - centre) <= Fraction(float(around[row, column]))


@settings(max_examples=40, deadline=None)
@given(offset=st.sampled_from(OFFSETS), width=st.sampled_from(RANGES), seed=st.integers(0, 10**6))
def test_the_order_is_kept(offset, width, seed):
    data = table(offset, width, seed)
    scaling = Scaling.of(data, "range")
    generator = np.random.default_rng(seed)
    points = np.repeat(data[:1], 300, 0)
    low, high = data[:, 0].min(), data[:, 0].max()
    points[:, 0] = np.sort(low + (high - low) * generator.uniform(-0.2, 1.2, 300))
    points[:4, 0] = [-np.inf, -1.7e308, low, np.nextafter(low, np.inf)]
    points[-1, 0] = np.inf
    points[:, 0].sort()
    inputs = scaling.inputs(points)[:, 0]
    assert inputs.dtype == np.float32
    assert (np.diff(inputs) >= 0).all()
    assert inputs.min() == 0
    assert inputs.max() == (1 if scaling.span[0] > 0 else 0)


def test_a_feature_that_is_constant_or_nearly_so_is_left_out():
    data = table(1.0, 1.0, 0)
    data = np.column_stack([data, np.linspace(0, NARROWEST / 2, 16), np.linspace(0, 1e-310, 16)])
    scaling = Scaling.of(data, "range")
    assert (scaling.span > 0).tolist() == [True, True, False, False, False]
    moved = data.copy()
    moved[:, 2:] = 1e300
    assert np.array_equal(scaling.inputs(data), scaling.inputs(moved))


def test_one_eps_is_the_same_share_of_every_feature():
    data = table(1e9, 1e-3, 1)[:, :2]
    around = radii(Scaling.of(data, "range"), data[3:4] * 0 + data.mean(0), 0.01)
    assert around == pytest.approx(0.01, rel=2e-2)  # 1e9 + 1e-3 has a grain of 1e-7
    units = Scaling.of(np.array([[0.0, 0.0], [10.0, 1.0]]), 1.0)
    assert units.ratio == 10
    assert radii(units, np.array([[5.0, 0.5]]), 1.0) == pytest.approx(0.1)


def test_images_have_one_scale():
    images = np.random.default_rng(0).integers(3, 200, (5, 4, 4)).astype(np.float64)
    scaling = Scaling.of(images, "range")
    assert scaling.scale.shape == ()
    assert float(Scaling.of(images, "range", levels=True).scale) == 255


@pytest.mark.parametrize(
    ("scale", "words"),
    [
        ("std", "range"), (0.0, "more than 0"), (-1, "more than 0"), (np.nan, "finite"), ([1.0, 2.0], "3 numbers"),
        (object(), "a number"),
    ],
)  # fmt: skip
def test_what_is_no_scale_is_refused(scale, words):
    with pytest.raises(ValueError, match=words):
        Scaling.of(table(0.0, 1.0, 0), scale)


def test_a_range_beyond_all_floats_is_refused():
    with pytest.raises(ValueError, match="feature 1 goes from -1e\\+308 to 1e\\+308"):
        Scaling.of(np.array([[0.0, -1e308], [1.0, 1e308]]), "range")
