"""Normalize: values, a Lipschitz constant that is never too small, boxes."""

import math
from fractions import Fraction

import pytest
import torch

from linfdist.eps import round_up
from linfdist.nn import CenterCrop, Flatten, Normalize, Stack

from .samples import assert_encloses, points_of, random_box

PAPER_STDS = [0.3081, 0.3520, 0.2009, 0.2276]


def test_values_by_hand():
    layer = Normalize([0.5, 0.25], 0.5)
    y = layer(torch.tensor([1.0, 0.0]).view(1, 2, 1, 1))
    assert y.flatten().tolist() == [1.0, -0.5]
    assert layer.lipschitz == 2


@pytest.mark.parametrize("std", PAPER_STDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_lipschitz_is_rounded_up_for_the_std_in_use(std, dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        layer = Normalize([0.5], std)
    finally:
        torch.set_default_dtype(before)
    exact = 1 / Fraction(layer.std.item())
    assert Fraction(layer.lipschitz) >= exact
    assert Fraction(math.nextafter(layer.lipschitz, 0)) < exact
    assert layer.lipschitz == pytest.approx(1 / std, rel=1e-7)
    assert layer.double().lipschitz == layer.lipschitz


def test_round_up():
    third = round_up(Fraction(1, 3))
    assert Fraction(math.nextafter(third, 0)) < Fraction(1, 3) <= Fraction(third)
    assert round_up(Fraction(3, 4)) == 0.75


def test_a_stack_multiplies_the_constants():
    stack = Stack(Normalize([0.5], 0.3081), Flatten())
    assert stack.lipschitz == Normalize([0.5], 0.3081).lipschitz
    twice = Stack(Normalize([0.5], 0.3081), Normalize([0.5], 0.2009))
    constants = [layer.lipschitz for layer in twice]
    assert Fraction(twice.lipschitz) >= Fraction(constants[0]) * Fraction(constants[1])
    assert Stack().lipschitz == 1


@pytest.mark.parametrize("std", PAPER_STDS)
def test_boxes_enclose_without_slack(dtype, std):
    layer = Normalize([0.1307, 0.4, 0.9], std).to(dtype)
    box = random_box(3, 3, 11, 13, dtype=dtype, radius=1e-6)
    bounds = layer.forward_box(box)
    for x in points_of(box):
        assert_encloses(bounds, layer(x))


@pytest.mark.parametrize("std", [0.0, -1.0, math.nan, math.inf, 1e-60])
def test_impossible_std(std):
    with pytest.raises(ValueError, match="std must be positive"):
        Normalize([0.5], std)
    layer = Normalize([0.5], 0.5)
    with pytest.raises(ValueError, match="std must be positive"):
        layer.load_state_dict({**layer.state_dict(), "std": torch.tensor(std)})


@pytest.mark.parametrize("mean", [[], [math.nan]])
def test_impossible_mean(mean):
    with pytest.raises(ValueError, match="mean must be"):
        Normalize(mean, 0.5)


def test_channels_must_fit():
    with pytest.raises(ValueError, match=r"need images \(B, 3, H, W\), got \(2, 1, 4, 4\)"):
        Normalize([0.5] * 3, 0.5)(torch.rand(2, 1, 4, 4))


def test_center_crop():
    x = torch.arange(35.0).view(1, 1, 5, 7)
    assert CenterCrop(3)(x).tolist() == [[[[9.0, 10.0, 11.0], [16.0, 17.0, 18.0], [23.0, 24.0, 25.0]]]]
    assert CenterCrop(2)(x).tolist() == [[[[9.0, 10.0], [16.0, 17.0]]]]
    square = torch.rand(2, 3, 4, 4)
    assert torch.equal(CenterCrop(4)(square), square)
    with pytest.raises(ValueError, match="cannot crop an image of 5x7 to 6x6"):
        CenterCrop(6)(x)
    with pytest.raises(ValueError, match="at least 1"):
        CenterCrop(0)
