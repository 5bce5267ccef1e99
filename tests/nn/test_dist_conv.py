"""DistConv2d: values by hand, the identity at the centre, boxes, shapes that do not fit."""

import pytest
import torch

from linfdist.nn import DistConv2d, MeanShift

from .samples import assert_encloses, points_of, random_box


def test_values_by_hand():
    layer = DistConv2d(1, 1, 2, padding=1, stride=2, bias=True)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[[[0.0, 1.0], [2.0, 3.0]]]]))
        layer.bias.fill_(0.25)
    x = torch.tensor([[[[4.0, 5.0], [6.0, -7.0]]]])
    # windows, padded with zeros: (0 0 / 0 4), (0 0 / 5 0), (0 6 / 0 0), (-7 0 / 0 0)
    assert layer(x).tolist() == [[[[2.25, 3.25], [5.25, 7.25]]]]
    assert layer.output_shape((layer.in_channels, 2, 2))[1:] == (2, 2)


@pytest.mark.parametrize("groups", [1, 2])
def test_identity_sits_at_the_centre(groups):
    layer = DistConv2d(4, 12, (3, 5), groups=groups, identity_init=True)
    assert (layer.weight == -10).sum() == 12
    for k in range(12):
        assert layer.weight[k, k % (12 // groups) % (4 // groups), 1, 2] == -10


@pytest.mark.parametrize(("stride", "dilation", "groups"), [(1, 1, 1), (2, 1, 1), (1, 2, 1), (1, 1, 3)])
def test_identity_is_an_identity_after_the_mean_shift(stride, dilation, groups):
    x = (torch.rand(16, 3, 9, 8) - 0.5) / 0.2
    layer = DistConv2d(3, 6, 3, stride=stride, padding=dilation, dilation=dilation, groups=groups, identity_init=True)
    y = MeanShift(6)(layer(x))
    k = torch.arange(6)
    source = k % 3 if groups == 1 else k // 2  # with groups, neighbours share an input
    copy = x[:, :, ::stride, ::stride]
    expected = (copy - copy.mean((0, 2, 3), keepdim=True))[:, source]
    torch.testing.assert_close(y, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"in_channels": 5, "out_channels": 4, "kernel_size": 3, "identity_init": True}, "got 5 > 4"),
        ({"in_channels": 4, "out_channels": 4, "kernel_size": 2, "identity_init": True}, "kernel with a centre"),
        ({"in_channels": 4, "out_channels": 5, "kernel_size": 3, "groups": 2}, "do not divide into groups=2"),
        ({"in_channels": 4, "out_channels": 4, "kernel_size": (3, 0)}, "kernel_size must be"),
        ({"in_channels": 4, "out_channels": 4, "kernel_size": (3, 3, 3)}, "kernel_size must be"),
        ({"in_channels": 4, "out_channels": 4, "kernel_size": 3, "stride": 0}, "stride must be"),
    ],
)
def test_impossible_shapes(arguments, message):
    with pytest.raises(ValueError, match=message):
        DistConv2d(**arguments)


@pytest.mark.parametrize("bias", [False, True])
def test_boxes_enclose_without_slack(backend, dtype, bias):
    layer = DistConv2d(3, 5, 3, stride=2, padding=1, bias=bias).to(dtype)
    if bias:
        torch.nn.init.normal_(layer.bias)
    box = random_box(2, 3, 7, 6, dtype=dtype)
    bounds = layer.forward_box(box)
    for x in points_of(box):
        assert_encloses(bounds, layer(x))
