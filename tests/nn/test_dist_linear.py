"""DistLinear: values by hand, initialisation, boxes."""

import math

import pytest
import torch

import linfdist as ld
from linfdist.nn import DistLinear, MeanShift

from .samples import assert_encloses, points_of, random_box


def with_weight(rows, bias=None):
    layer = DistLinear(len(rows[0]), len(rows), bias=bias is not None)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(rows))
        if bias is not None:
            layer.bias.copy_(torch.tensor(bias))
    return layer


def test_values_by_hand():
    x = torch.tensor([[1.0, 2.0], [-3.0, 0.0]])
    layer = with_weight([[0.0, 0.0], [4.0, -2.0], [1.0, 2.0]])
    assert layer(x).tolist() == [[2.0, 4.0, 0.0], [3.0, 7.0, 4.0]]
    torch.testing.assert_close(layer(x, 2.0)[0], torch.tensor([math.sqrt(5), 5.0, 0.0]))
    assert layer(x, 1.0)[1].tolist() == [3.0, 9.0, 6.0]
    assert layer.lipschitz == 1


def test_bias_is_added():
    layer = with_weight([[0.0, 0.0], [4.0, -2.0]], bias=[0.5, -1.0])
    assert layer(torch.tensor([[1.0, 2.0]])).tolist() == [[2.5, 3.0]]


def test_starts_as_a_standard_gaussian_without_bias():
    layer = DistLinear(300, 400)
    assert layer.bias is None
    assert layer.weight.shape == (400, 300)
    assert abs(layer.weight.mean()) < 0.01
    assert abs(layer.weight.std() - 1) < 0.01
    assert DistLinear(3, 4, bias=True).bias.tolist() == [0.0] * 4


def test_identity_weights():
    weight = DistLinear(3, 8, identity_init=True).weight
    for k in range(8):
        assert weight[k, k % 3] == -10
    assert (weight == -10).sum() == 8


@pytest.mark.parametrize(("inputs", "outputs"), [(50, 50), (50, 120)])
def test_identity_is_an_identity_after_the_mean_shift(inputs, outputs):
    """|x + 10| wins against |x - w|, w from N(0, 1), for any normalised pixel."""
    x = (torch.rand(64, inputs) - 0.1307) / 0.3081
    y = MeanShift(outputs)(DistLinear(inputs, outputs, identity_init=True)(x))
    expected = (x - x.mean(0))[:, torch.arange(outputs) % inputs]
    torch.testing.assert_close(y, expected, rtol=0, atol=1e-5)


def test_identity_needs_room():
    with pytest.raises(ValueError, match=r"identity_init needs in_features <= out_features, got 5 > 4"):
        DistLinear(5, 4, identity_init=True)


@pytest.mark.parametrize("bias", [False, True])
def test_boxes_enclose_without_slack(backend, dtype, bias):
    layer = DistLinear(29, 13, bias=bias).to(dtype)
    if bias:
        torch.nn.init.normal_(layer.bias)
    box = random_box(7, 29, dtype=dtype)
    bounds = layer.forward_box(box)
    for x in points_of(box):
        assert_encloses(bounds, layer(x))


def test_boxes_by_hand():
    layer = with_weight([[0.0, 0.0]], bias=[0.5])
    bounds = layer.forward_box(ld.nn.Box(torch.tensor([[1.0, -3.0]]), torch.tensor([[2.0, 1.0]])))
    assert (bounds.lower.item(), bounds.upper.item()) == (1.5, 3.5)
