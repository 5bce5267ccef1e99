"""The bound of the rounding encloses it."""

import copy
import math

import pytest
import torch

from linfdist.models import DistNet
from linfdist.models.base import rounding_error
from linfdist.nn import Normalize

from .nets import head_net, images, random_net


def extreme():
    corners = (torch.rand(64, 1, 3, 3) < 0.5).float()
    denormal = torch.full((1, 1, 3, 3), 1e-42)
    return torch.cat([corners, images(64), denormal, 1 - images(4) * 2**-20, torch.rand(64, 1, 3, 3)])


@pytest.mark.parametrize("size", [1e-6, 1.0, 100.0, 1e6])
@pytest.mark.parametrize("mean_shift", [True, False])
def test_it_encloses_the_difference_to_float64(size, mean_shift):
    worst = 0.0
    for seed in range(12):
        net = random_net(seed, width=16, depth=5, size=size, mean_shift=mean_shift)
        x = extreme()
        difference = (net(x).double() - copy.deepcopy(net).double()(x.double())).abs().max().item()
        bound = rounding_error(net)
        assert difference <= bound
        assert rounding_error(copy.deepcopy(net).double()) == pytest.approx(bound * 2.0**-29)
        worst = max(worst, difference / bound)
    assert worst > 0.01  # not wildly pessimistic either


@pytest.mark.parametrize("conv", [False, True])
def test_it_encloses_the_features_below_a_head(conv):
    for seed in range(4):
        net = head_net(seed, conv=conv)
        x = extreme()
        difference = (net.features(x).double() - copy.deepcopy(net).double().features(x.double())).abs().max().item()
        assert 0.01 * rounding_error(net) < difference <= rounding_error(net)


def test_a_second_normalisation_stretches_the_errors_before_it():
    """Pixels − 1, then times 2^20: what the first subtraction loses, 2^-24 of 2, becomes 2^20 times as much."""
    net = DistNet((1, 1, 1), 2, 1, 1, [1.0], 1.0).eval()
    net.body.layers.insert(1, Normalize([0.0], 2.0**-20))
    with torch.no_grad():
        net.last.weight.zero_()
    size = 2 * 2.0**20
    wanted = (2 * 2 * 2.0**20 + 2 * size + 2 * size) * 2.0**-24 * 1025 / 1024
    assert rounding_error(net.eval()) == pytest.approx(wanted)


def test_by_hand():
    """(x - 0.5) / 0.25: 2 operations of size 6; |. - 3|: size 9; + 1: size 10, so 2 of 10."""
    net = DistNet((1, 1, 1), 2, 1, 1, [0.5], 0.25).eval()
    with torch.no_grad():
        net.last.weight.copy_(torch.tensor([[3.0], [-2.0]]))
        net.last.bias.copy_(torch.tensor([1.0, 0.0]))
    assert rounding_error(net) == pytest.approx(2.0**-24 * (2 * 6 + 2 * 10) * 1025 / 1024)


def test_values_that_might_overflow_have_no_bound():
    assert rounding_error(random_net(0, size=8e37)) == math.inf
