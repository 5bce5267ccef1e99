"""Boxes: the reference's bits and places."""

import math

import pytest
import torch

import linfdist as ld
from linfdist.ops.backends import reference, triton
from linfdist.ops.geometry import POINT, Geometry

from ..ops import truth

SHAPES = [(1, 1, 1), (3, 5, 7), (67, 8, 2), (2, 31, 65)]  # rows, inputs, neurons: around a chunk of 8, a tile of 64
LAYERS = [
    ((2, 6, 5, 7), (4, 3, 2, 3), Geometry((1, 2), (1, 0), (2, 1), 2)),
    ((1, 5, 4, 3), (3, 5, 3, 3), Geometry((1, 1), (1, 1), (1, 1), 1)),
]


def box(x_shape, w_shape, dtype, kind):
    if kind == "random":
        lower, w = torch.randn(x_shape, dtype=dtype), torch.randn(w_shape, dtype=dtype)
        return lower, lower + torch.rand(x_shape, dtype=dtype), w
    lower, w = truth.whole(*x_shape, dtype=dtype, most=2), truth.whole(*w_shape, dtype=dtype, most=2)  # many ties
    upper = lower + truth.whole(*x_shape, dtype=dtype, most=1).abs()
    if kind == "not finite":
        for tensor, value, share in ((lower, -math.inf, 0.05), (upper, math.inf, 0.05), (w, math.inf, 0.02)):
            tensor[torch.rand(tensor.shape) < share] = value
        lower[torch.rand(x_shape) < 0.03], w[torch.rand(w_shape) < 0.02] = math.nan, math.nan
    return lower, upper, w


def check(lower, upper, w, geometry):
    *bounds, near_where, far_where = reference.box_dist_argmax(lower, upper, w, geometry)
    for actual, expected in zip(triton.box_dist(lower, upper, w, geometry), bounds, strict=True):
        truth.assert_same_bits(actual, expected)
    *actual, near, far = triton.box_dist_argmax(lower, upper, w, geometry)
    for one, expected in zip(actual, bounds, strict=True):
        truth.assert_same_bits(one, expected)
    assert torch.equal(near, near_where)
    assert torch.equal(far, far_where)


@pytest.mark.parametrize("kind", ["random", "ties", "not finite"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_linear(shape, kind, dtype):
    rows, inputs, neurons = shape
    check(*box((rows, inputs, 1, 1), (neurons, inputs, 1, 1), dtype, kind), POINT)


@pytest.mark.parametrize("kind", ["random", "ties"])
@pytest.mark.parametrize("layer", LAYERS, ids=str)
def test_convolution(layer, kind):
    x_shape, w_shape, geometry = layer
    check(*box(x_shape, w_shape, torch.float32, kind), geometry)


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16], ids=str)
def test_halves_are_rounded_once(half):
    """Rounding preserves order, so the largest of the rounded differences is the largest difference, rounded."""
    lower, upper, w = box((9, 13, 1, 1), (5, 13, 1, 1), half, "random")
    for actual, expected in zip(
        triton.box_dist(lower, upper, w, POINT), reference.box_dist(lower, upper, w, POINT), strict=True
    ):
        assert torch.equal(actual, expected)


def test_bounds_of_zeros_are_plus_zero_and_nothing_is_zero():
    zeros = torch.zeros(2, 3, 1, 1)
    for bound in triton.box_dist(-zeros, zeros, -zeros, POINT):
        truth.assert_same_bits(bound, torch.zeros(2, 2, 1, 1))
    for shape in ((0, 3, 4), (3, 0, 4), (3, 4, 0)):
        check(*box((shape[0], shape[1], 1, 1), (shape[2], shape[1], 1, 1), torch.float32, "random"), POINT)


def test_the_public_function_runs_it_and_encloses():
    lower, upper, w = (tensor[..., 0, 0] for tensor in box((5, 9, 1, 1), (4, 9, 1, 1), torch.float32, "random"))
    near, far = ld.dist_box(lower, upper, w)
    for part in (0.0, 0.3, 1.0):
        y = ld.dist((lower + part * (upper - lower)).clamp(lower, upper), w)
        assert (near <= y).all()
        assert (y <= far).all()
