"""Any layout of the same numbers gives the same result; nothing in, nothing out."""

import math

import pytest
import torch

import linfdist as ld

from . import truth

POWERS = [1, 2, 8, 30.5, math.inf]


def embedded(t):
    """The same values, every second of a larger storage in both directions."""
    storage = torch.full((2 * t.shape[0], 3 * t.shape[1]), math.nan, dtype=t.dtype)
    storage[1::2, 2::3] = t
    return storage[1::2, 2::3]


LAYOUTS = {
    "transposed": lambda t: t.T.contiguous().T,
    "embedded": embedded,
    "offset": lambda t: torch.cat([torch.full((1,), math.nan, dtype=t.dtype), t.flatten()])[1:].view(t.shape),
    "flipped back": lambda t: t.flip(0).flip(0),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("p", POWERS)
def test_layout_does_not_matter(backend, dtype, p, layout):
    x, w, g = torch.rand(37, 29, dtype=dtype), torch.randn(11, 29, dtype=dtype), torch.randn(37, 11, dtype=dtype)
    change = LAYOUTS[layout]
    for actual, expected in zip(truth.step(change(x), change(w), change(g), p), truth.step(x, w, g, p), strict=True):
        assert torch.equal(actual, expected)
    for actual, expected in zip(
        ld.dist_box(change(x), change(x + 1), change(w)), ld.dist_box(x, x + 1, w), strict=True
    ):
        assert torch.equal(actual, expected)


@pytest.mark.parametrize("p", POWERS)
def test_expanded_inputs_get_summed_gradients(backend, p):
    x, w = torch.rand(1, 29), torch.randn(11, 1)
    x_leaf, w_leaf = x.clone().requires_grad_(), w.clone().requires_grad_()
    g = truth.whole(37, 11)
    y = ld.dist(x_leaf.expand(37, 29), w_leaf.expand(11, 29), p)
    y.backward(g)
    expected, dx, dw = truth.step(x.repeat(37, 1), w.repeat(1, 29), g, p)
    assert torch.equal(y, expected)
    torch.testing.assert_close(x_leaf.grad, dx.sum(0, keepdim=True))
    torch.testing.assert_close(w_leaf.grad, dw.sum(1, keepdim=True))


@pytest.mark.parametrize("p", POWERS)
def test_a_gradient_that_is_one_number_expanded(backend, p):
    """What `y.sum().backward()` hands to the kernel."""
    x, w = torch.rand(37, 29, requires_grad=True), torch.randn(11, 29, requires_grad=True)
    ld.dist(x, w, p).sum().backward()
    _, dx, dw = truth.step(x, w, torch.ones(37, 11), p)
    assert torch.equal(x.grad, dx)
    assert torch.equal(w.grad, dw)


@pytest.mark.parametrize("leading", [(), (1,), (3,), (2, 3), (5, 1, 7), (2, 0, 3)], ids=str)
@pytest.mark.parametrize("p", [3, math.inf])
def test_leading_dimensions(backend, p, leading):
    x, w = torch.rand(*leading, 13, requires_grad=True), torch.randn(6, 13)
    y = ld.dist(x, w, p)
    assert y.shape == (*leading, 6)
    assert torch.equal(y.reshape(-1, 6), ld.dist(x.reshape(-1, 13), w, p))
    y.sum().backward()
    assert x.grad.shape == x.shape
    for bound, rows in zip(
        ld.dist_box(x, x + 1, w), ld.dist_box(x.reshape(-1, 13), x.reshape(-1, 13) + 1, w), strict=True
    ):
        assert bound.shape == y.shape
        assert torch.equal(bound.reshape(-1, 6), rows)


@pytest.mark.parametrize("p", POWERS)
@pytest.mark.parametrize(("rows", "inputs", "neurons"), [(0, 7, 4), (5, 7, 0), (5, 0, 4), (0, 0, 0), (70, 0, 3)])
def test_empty(backend, dtype, p, rows, inputs, neurons):
    x = torch.randn(rows, inputs, dtype=dtype, requires_grad=True)
    w = torch.randn(neurons, inputs, dtype=dtype, requires_grad=True)
    y = ld.dist(x, w, p)
    truth.assert_same_bits(y, torch.zeros(rows, neurons, dtype=dtype))
    truth.assert_same_bits(ld.dist(x.detach(), w.detach(), p), y)
    near, far = ld.dist_box(x, x + 1, w)
    truth.assert_same_bits(near, torch.zeros(rows, neurons, dtype=dtype))
    truth.assert_same_bits(far, torch.zeros(rows, neurons, dtype=dtype))
    (y + near + far).sum().backward()
    assert torch.equal(x.grad, torch.zeros_like(x))
    assert torch.equal(w.grad, torch.zeros_like(w))


@pytest.mark.parametrize("p", POWERS)
def test_inputs_are_left_alone(backend, dtype, p):
    x, w, g = torch.rand(40, 29, dtype=dtype), torch.randn(11, 29, dtype=dtype), torch.randn(40, 11, dtype=dtype)
    before = [t.clone() for t in (x, w, g)]
    truth.step(x, w, g, p)
    ld.dist(x, w, p)
    ld.dist_box(x, x, w)
    for now, then in zip((x, w, g), before, strict=True):
        assert torch.equal(now, then)


@pytest.mark.compiled
@pytest.mark.parametrize("p", [8, 100, math.inf])
def test_a_row_does_not_depend_on_its_batch(backend, p):
    """Paths, panels and pruned lists are chosen per batch; p = inf keeps its bits, finite p its accuracy."""
    x, w = torch.rand(130, 61), torch.randn(17, 61)
    whole = ld.dist(x, w, p)
    for rows in (1, 16, 17, 31, 32, 33, 63, 64, 65):
        part = ld.dist(x[:rows], w, p)
        if p == math.inf:
            assert torch.equal(part, whole[:rows])
        else:
            assert truth.relative_error(part, whole[:rows].double()) <= 1e-6
