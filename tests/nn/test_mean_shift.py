"""MeanShift in one process: batch mean, running mean, boxes."""

import pytest
import torch

from linfdist.nn import Box, MeanShift

from .samples import assert_encloses, points_of, random_box


def test_training_by_hand():
    layer = MeanShift(2)
    x = torch.tensor([[1.0, 10.0], [3.0, 30.0]])
    assert layer(x).tolist() == [[-1.0, -10.0], [1.0, 10.0]]
    torch.testing.assert_close(layer.running_mean, torch.tensor([0.2, 2.0]))
    layer(x + 1)
    torch.testing.assert_close(layer.running_mean, torch.tensor([0.9 * 0.2 + 0.3, 0.9 * 2.0 + 2.1]))


def test_images_share_one_mean_a_channel():
    layer = MeanShift(3).double()
    x = torch.rand(4, 3, 5, 6, dtype=torch.float64)
    mean = x.mean((0, 2, 3))
    torch.testing.assert_close(layer(x), x - mean[:, None, None])
    torch.testing.assert_close(layer.running_mean, 0.1 * mean)


def test_eval_subtracts_the_running_mean_and_leaves_it():
    layer = MeanShift(2).eval()
    layer.running_mean.copy_(torch.tensor([1.0, -2.0]))
    assert layer(torch.tensor([[5.0, 5.0]])).tolist() == [[4.0, 7.0]]
    assert layer.running_mean.tolist() == [1.0, -2.0]
    assert layer.lipschitz == 1


def test_running_mean_settles_at_the_mean():
    layer = MeanShift(3).double()
    x = torch.rand(8, 3, dtype=torch.float64)
    for _ in range(300):
        layer(x)
    torch.testing.assert_close(layer.eval()(x), x - x.mean(0))


@pytest.mark.parametrize("shape", [(5, 3), (2, 3, 4, 2)])
def test_gradient(shape):
    x = torch.rand(shape, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(MeanShift(3).double(), x)


def test_boxes_enclose_in_eval_mode():
    layer = MeanShift(3).eval()
    layer.running_mean.copy_(torch.randn(3))
    for shape in [(5, 3), (2, 3, 4, 2)]:
        box = random_box(*shape)
        bounds = layer.forward_box(box)
        for x in points_of(box):
            assert_encloses(bounds, layer(x))


def test_boxes_are_refused_in_training_mode():
    layer = MeanShift(3)
    with pytest.raises(RuntimeError, match=r"model\.eval\(\)"):
        layer.forward_box(Box(torch.zeros(1, 3), torch.ones(1, 3)))
    assert not layer.running_mean.any()


@pytest.mark.parametrize("shape", [(3,), (5, 4), (3, 5), (2, 4, 3, 3), (2, 3, 4)])
def test_wrong_shapes(shape):
    with pytest.raises(ValueError, match=r"need x \(B, 3\) or \(B, 3, H, W\), got"):
        MeanShift(3)(torch.rand(shape))


def test_an_empty_batch_has_no_mean():
    layer = MeanShift(3)
    with pytest.raises(ValueError, match="empty batch"):
        layer(torch.rand(0, 3))
    assert not layer.running_mean.any()
    assert layer.eval()(torch.rand(0, 3)).shape == (0, 3)
