"""Clip: values, a slope that is never too small, boxes that become points."""

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from linfdist.nn import Box, Clip

from .flushing import flushing
from .samples import assert_encloses, points_of, random_box

BOUNDS = [(0.0, 1.0), (0.25, 0.75), (0.1, 0.7), (0.0, 1e-3), (0.999, 1.0)]


def test_values_by_hand():
    x = torch.tensor([0.0, 0.25, 0.375, 0.5, 0.75, 1.0])
    layer = Clip(0.25, 0.75)
    assert layer(x).tolist() == [0.0, 0.0, 0.25, 0.5, 1.0, 1.0]
    assert layer.lipschitz == 2


@pytest.mark.parametrize(("low", "high"), BOUNDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_lipschitz_is_rounded_up_for_the_bounds_in_use(low, high, dtype):
    layer = Clip(low, high).to(dtype)
    exact = 1 / Fraction((layer.high - layer.low).item())
    assert Fraction(layer.lipschitz) >= exact
    assert Fraction(math.nextafter(layer.lipschitz, 0)) < exact
    assert layer.lipschitz == pytest.approx(1 / (high - low), rel=1e-3)


@pytest.mark.parametrize(("low", "high"), BOUNDS)
def test_flat_outside_and_exact_at_the_bounds(low, high):
    layer = Clip(low, high)
    below, above = torch.linspace(0, layer.low.item(), 999), torch.linspace(layer.high.item(), 1, 999)
    assert (layer(below) == 0).all()
    assert (layer(above) == 1).all()
    around = torch.nextafter(layer.high, torch.tensor(0.0))
    assert layer(around) <= 1


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10**6), bounds=st.sampled_from(BOUNDS), radius=st.sampled_from([1e-30, 1e-7, 0.05, 1.0]),
    flush=st.booleans(),
)  # fmt: skip
def test_boxes_enclose_without_slack(seed, bounds, radius, flush):
    torch.manual_seed(seed)
    layer, box = Clip(*bounds), random_box(3, 2, 5, 5, radius=radius)
    with flushing(flush):
        found = layer.forward_box(box)
        for x in points_of(box):
            assert_encloses(found, layer(x))


def test_pixels_out_of_reach_become_points():
    layer, x = Clip(0.25, 0.75), torch.tensor([0.1, 0.9, 0.2, 0.5])
    low, high = layer.forward_box(Box(x - 0.125, x + 0.125))
    assert (low == high).tolist() == [True, True, False, False]


@settings(max_examples=40)
@given(x=st.floats(0, 1, width=32), bounds=st.sampled_from(BOUNDS))
def test_the_declared_rounding_holds(x, bounds):
    layer = Clip(*bounds)
    low, high = Fraction(layer.low.item()), Fraction(layer.high.item())
    span = Fraction((layer.high - layer.low).item())
    exact = min(max((Fraction(x) - low) / span, Fraction(0)), Fraction(1))
    computed = Fraction(layer(torch.tensor(x)).item())
    declared = layer.rounding(Fraction(1), Fraction(1, 2**24))
    assert abs(computed - exact) <= declared.error * Fraction(1025, 1024)
    assert computed <= declared.size <= declared.peak
    assert abs(high - low - span) <= span / 2**24


@pytest.mark.parametrize("bounds", [(0.7, 0.3), (0.5, 0.5), (-0.1, 1), (0, 1.1), (math.nan, 1), (0, math.nan)])
def test_impossible_bounds(bounds):
    with pytest.raises(ValueError, match="0 <= low < high <= 1, got low = "):
        Clip(*bounds)
    layer = Clip(0.25, 0.75)
    with pytest.raises(ValueError, match="0 <= low < high <= 1"):
        layer.load_state_dict({"low": torch.tensor(bounds[0]), "high": torch.tensor(bounds[1])})


def test_bounds_too_close_together():
    with pytest.raises(ValueError, match=r"at least 2\^-20 apart, got low = 0.5"):
        Clip(0.5, 0.5 + 2**-21)
    assert Clip(0.0, 2**-20).lipschitz == 2**20


def test_bounds_that_are_not_numbers_of_their_own_are_refused():
    layer = Clip(0.25, 0.75)
    layer.low = torch.tensor([0.25, 0.5])
    with pytest.raises(ValueError, match=r"net.0.low has shape \(2,\), but had shape \(\) when"):
        layer.check_shapes("net.0")
