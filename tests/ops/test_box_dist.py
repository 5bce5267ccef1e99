"""Interval bounds at p = inf: exact, enclosing, attained, differentiable."""

import pytest
import torch

import linfdist as ld
from linfdist.ops import operators
from linfdist.ops.backends import native
from linfdist.ops.geometry import POINT, Geometry

from . import truth

SHAPES = [
    (1, 1, 1), (2, 1, 3), (3, 5, 7), (16, 33, 5), (17, 31, 5), (31, 17, 19), (32, 64, 16), (65, 127, 33),
    (130, 200, 71),
]  # fmt: skip


def box(rows, inputs, neurons, dtype, kind):
    if kind == "nothing to prune":
        centre, width = 3 * torch.randn(rows, inputs, dtype=dtype), torch.rand(rows, inputs, dtype=dtype)
    elif kind == "most pruned":
        centre, width = torch.rand(rows, inputs, dtype=dtype), 0.1 * torch.rand(rows, inputs, dtype=dtype)
    else:  # integers, a third of the box is a point
        centre = truth.whole(rows, inputs, dtype=dtype, most=3)
        width = truth.whole(rows, inputs, dtype=dtype, most=1).abs()
        return centre, centre + width, truth.whole(neurons, inputs, dtype=dtype, most=3)
    return centre - width, centre + width, torch.randn(neurons, inputs, dtype=dtype)


def gradients(lower, upper, w, g_near, g_far):
    leaves = [t.detach().requires_grad_() for t in (lower, upper, w)]
    near, far = ld.dist_box(*leaves)
    return near.detach(), far.detach(), *torch.autograd.grad((near, far), leaves, (g_near, g_far))


def expected_gradients(lower, upper, w, g_near, g_far):
    """The rule of the docstring, entry by entry of the cube (B, O, I)."""
    low, high = lower[:, None] - w, w - upper[:, None]
    near, far = truth.box_dist(lower, upper, w)
    i = torch.arange(w.shape[1])
    at_near = i == truth.first_argmax(torch.maximum(low, high))[..., None]
    at_far = i == truth.first_argmax(torch.maximum(-high, -low))[..., None]
    g_near, g_far = g_near.where(near != 0, 0.0)[..., None], g_far.where(far != 0, 0.0)[..., None]
    near_lower, near_upper = g_near * (at_near & (low >= high)), -g_near * (at_near & (low < high))
    far_upper, far_lower = g_far * (at_far & (-high >= -low)), -g_far * (at_far & (-high < -low))
    terms = (near_lower + far_lower, near_upper + far_upper)
    return terms[0].sum(1), terms[1].sum(1), -(terms[0] + terms[1]).sum(0)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("kind", ["nothing to prune", "most pruned", "integers"])
def test_values_and_gradients_are_exact(backend, dtype, kind, shape):
    lower, upper, w = box(*shape, dtype, kind)
    g_near, g_far = (truth.whole(shape[0], shape[2], dtype=dtype) for _ in range(2))
    expected = truth.box_dist(lower, upper, w)
    for actual, bound in zip(ld.dist_box(lower, upper, w), expected, strict=True):
        truth.assert_same_bits(actual, bound)
    near, far, *actual = gradients(lower, upper, w, g_near, g_far)
    truth.assert_same_bits(near, expected[0])
    truth.assert_same_bits(far, expected[1])
    for gradient, right in zip(actual, expected_gradients(lower, upper, w, g_near, g_far), strict=True):
        assert torch.equal(gradient, right)


@pytest.mark.parametrize("rows", [3, 40, 70])
def test_every_distance_in_the_box_lies_between_the_bounds(backend, dtype, rows):
    """Without slack, for the rounded values too: corners, the nearest points, and points between."""
    lower, upper, w = box(rows, 29, 13, dtype, "nothing to prune")
    near, far = ld.dist_box(lower, upper, w)
    inside = [torch.where(torch.rand_like(lower) < 0.5, lower, upper) for _ in range(5)]
    inside += [(lower + torch.rand_like(lower) * (upper - lower)).clamp(lower, upper) for _ in range(20)]
    inside += [torch.maximum(torch.minimum(row, upper), lower) for row in w]
    for x in inside:
        y = ld.dist(x, w)
        assert (near <= y).all()
        assert (y <= far).all()


@pytest.mark.parametrize("rows", [3, 40, 70])
def test_each_neuron_attains_its_bounds(backend, dtype, rows):
    lower, upper, w = box(rows, 29, 13, dtype, "nothing to prune")
    near, far = ld.dist_box(lower, upper, w)
    for o, row in enumerate(w):
        nearest = torch.maximum(torch.minimum(row, upper), lower)
        farthest = torch.where(upper - row >= row - lower, upper, lower)
        assert torch.equal(ld.dist(nearest, row[None])[:, 0], near[:, o])
        assert torch.equal(ld.dist(farthest, row[None])[:, 0], far[:, o])


@pytest.mark.parametrize("rows", [1, 17, 40, 70])
def test_a_point_is_a_box(backend, dtype, rows):
    x, w = torch.rand(rows, 23, dtype=dtype), torch.randn(9, 23, dtype=dtype)
    near, far = ld.dist_box(x, x, w)
    truth.assert_same_bits(near, ld.dist(x, w))
    truth.assert_same_bits(far, ld.dist(x, w))


@pytest.mark.parametrize("rows", [2, 40])
def test_a_weight_inside_the_box_gives_zero_and_no_gradient(backend, dtype, rows):
    lower, w = torch.rand(rows, 11, dtype=dtype), 1 + torch.rand(3, 11, dtype=dtype)
    ones = torch.ones(rows, 3, dtype=dtype)
    near, _, d_lower, d_upper, dw = gradients(lower, lower + 3, w, ones, 0 * ones)
    truth.assert_same_bits(near, torch.zeros(rows, 3, dtype=dtype))
    for gradient in (d_lower, d_upper, dw):
        assert (gradient == 0).all()


@pytest.mark.parametrize("rows", [1, 16, 40, 70])
def test_bounds_of_zeros_are_plus_zero(backend, dtype, rows):
    """The same bits from every backend means the same zero."""
    zeros = torch.zeros(rows, 9, dtype=dtype)
    for lower in (zeros, -zeros):
        for upper in (zeros, -zeros):
            for w in (torch.zeros(3, 9, dtype=dtype), torch.full((3, 9), -0.0, dtype=dtype)):
                for bound in (
                    *ld.dist_box(lower, upper, w),
                    *gradients(lower, upper, w, zeros[:, :3], zeros[:, :3])[:2],
                ):
                    truth.assert_same_bits(bound, torch.zeros(rows, 3, dtype=dtype))


@pytest.mark.parametrize("alone", ["lower", "upper", "w"])
def test_one_gradient_alone_is_that_of_all(backend, alone):
    need = [name == alone for name in ("lower", "upper", "w")]
    lower, upper, w = box(37, 41, 13, torch.float32, "nothing to prune")
    g = torch.randn(37, 13), torch.randn(37, 13)
    every = gradients(lower, upper, w, *g)[2:]
    leaves = [t.detach().requires_grad_(n) for t, n in zip((lower, upper, w), need, strict=True)]
    torch.autograd.backward(ld.dist_box(*leaves), g)
    for leaf, needed, expected in zip(leaves, need, every, strict=True):
        assert torch.equal(leaf.grad, expected) if needed else leaf.grad is None


LAYERS = {  # x, w, geometry
    "1 row": ((1, 1, 1, 1), (1, 1, 1, 1), POINT),
    "ragged": ((17, 31, 1, 1), (5, 31, 1, 1), POINT),
    "several panels and blocks": ((131, 211, 1, 1), (71, 211, 1, 1), POINT),
    "groups": ((19, 6, 1, 1), (10, 3, 1, 1), Geometry([1, 1], [0, 0], [1, 1], 2)),
    "padded": ((3, 2, 9, 13), (7, 2, 3, 2), Geometry([2, 1], [1, 2], [1, 3], 1)),
    "depthwise": ((2, 5, 6, 7), (15, 1, 3, 2), Geometry([1, 2], [2, 1], [1, 1], 5)),
    "no input": ((3, 0, 1, 1), (5, 0, 1, 1), POINT),
    "no row": ((0, 7, 1, 1), (5, 7, 1, 1), POINT),
    "no neuron": ((3, 7, 1, 1), (0, 7, 1, 1), POINT),
}


@pytest.mark.skipif(bool(native.missing()), reason=f"native: {native.missing()}")
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("layer", LAYERS)
def test_one_kernel_gives_the_bits_of_four_backwards(layer, threads, dtype):
    """Sums are rounded here, so their order counts; there are outputs and gradients of 0, NaN and ∞."""
    torch.set_num_threads(threads)
    x_shape, w_shape, geometry = LAYERS[layer]
    lower, w = torch.rand(x_shape, dtype=dtype), torch.rand(w_shape, dtype=dtype)
    upper = lower + torch.rand_like(lower).round()  # half of the box is a point
    *bounds, near_where, far_where = native.box_dist_argmax(lower, upper, w, geometry)
    for bound in bounds:
        bound.masked_fill_(torch.rand_like(bound) < 0.1, 0.0)
        bound.masked_fill_(torch.rand_like(bound) < 0.01, torch.nan)
    grads = [torch.randn_like(bound) for bound in bounds]
    for grad in grads:
        grad.masked_fill_(torch.rand_like(grad) < 0.01, torch.inf)
        grad.masked_fill_(torch.rand_like(grad) < 0.7, 0.0)  # these outputs are passed over, unless they are NaN
    tensors = (*grads, *bounds, near_where, far_where, x_shape, w_shape, geometry)
    for need in ((True, True, True), (False, True, False), (True, False, True), (False, False, True)):
        parts = operators.box_dist_backward_by_parts(native, *tensors, *need)
        for actual, expected in zip(native.box_dist_backward(*tensors, *need), parts, strict=True):
            truth.assert_same_bits(actual, expected)


def test_lower_above_upper_is_an_error(backend):
    lower, upper = torch.zeros(3, 5), torch.ones(3, 5)
    lower[1, 4] = 1.5
    with pytest.raises(ValueError, match=r"lower > upper at \(1, 4\): 1.5 > 1.0 \(first of 1 places\)"):
        ld.dist_box(lower, upper, torch.zeros(2, 5))
    with pytest.raises(ValueError, match=r"lower > upper at \(0, 1, 4, 0\)"):
        ld.dist_box_conv2d(lower[None, ..., None], upper[None, ..., None], torch.zeros(2, 3, 1, 1))
