"""Distances and their gradients on a device against the reference on the CPU."""

import math

import pytest
import torch

import linfdist as ld
from linfdist.ops.adam import adam_step

SHAPES = [(1, 1, 1), (5, 67, 13), (67, 131, 33)]  # B, I, O: ragged, and more than a tile
POWERS = [1.5, 8.0, 12.0, 30.5, 1000.0]
TOLERANCE = {torch.float32: 2e-6, torch.float64: 1e-12}  # of values, relative
GRADIENT = {torch.float32: 1e-3, torch.float64: 1e-10}  # of the largest entry


@pytest.fixture
def reference(monkeypatch):
    """Call something with the reference backend in force."""

    def call(function, *args):
        with monkeypatch.context() as patch:
            patch.setenv("LINFDIST_BACKEND", "reference")
            return function(*args)

    return call


def linear(p):
    def run(x, w, g):
        x, w = x.detach().requires_grad_(), w.detach().requires_grad_()
        y = ld.dist(x, w, p)
        return (ld.dist(x.detach(), w.detach(), p), y.detach(), *torch.autograd.grad(y, (x, w), g))

    return run


def convolution(p):
    def run(x, w, g):
        x, w = x.detach().requires_grad_(), w.detach().requires_grad_()
        y = ld.dist_conv2d(x, w, p, padding=1, stride=(1, 2), groups=2)
        return (y.detach(), y.detach(), *torch.autograd.grad(y, (x, w), g))

    return run


def box(lower, width, w):
    leaves = [each.detach().requires_grad_() for each in (lower, lower + width, w)]
    bounds = ld.dist_box(*leaves)
    return *(each.detach() for each in bounds), *torch.autograd.grad(sum(each.sum() for each in bounds), leaves)


def compare(found, right, p, dtype, values=2):
    """Values: bits at p = inf, else the tolerance; gradients: sums, whose order is the backend's own."""
    for k, (one, other) in enumerate(zip(found, right, strict=True)):
        if k >= values:
            torch.testing.assert_close(
                one.cpu(), other, rtol=0, atol=GRADIENT[dtype] * max(1, other.abs().max().item())
            )
        elif p == math.inf:
            assert torch.equal(one.cpu(), other)
        else:
            torch.testing.assert_close(one.cpu(), other, rtol=TOLERANCE[dtype], atol=0)


@pytest.mark.parametrize("p", [math.inf, *POWERS])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_linear(device, dtype, shape, p, reference):
    rows, inputs, neurons = shape
    x, w = torch.rand(rows, inputs, dtype=dtype), torch.randn(neurons, inputs, dtype=dtype)
    g = torch.randn(rows, neurons, dtype=dtype)
    found = linear(p)(*(each.to(device) for each in (x, w, g)))
    compare(found, reference(linear(p), x, w, g), p, dtype)
    again = linear(p)(*(each.to(device) for each in (x, w, g)))
    assert all(torch.equal(one, other) for one, other in zip(found, again, strict=True))


@pytest.mark.parametrize("p", [math.inf, 8.0, 30.5])
def test_convolution(device, dtype, p, reference):
    x, w = torch.randn(3, 6, 9, 7, dtype=dtype), torch.randn(10, 3, 3, 3, dtype=dtype)
    g = torch.randn(3, 10, 9, 4, dtype=dtype)
    found = convolution(p)(*(each.to(device) for each in (x, w, g)))
    compare(found, reference(convolution(p), x, w, g), p, dtype)


def test_boxes(device, dtype, reference):
    inputs = torch.rand(37, 67, dtype=dtype), torch.rand(37, 67, dtype=dtype), torch.randn(19, 67, dtype=dtype)
    compare(box(*(each.to(device) for each in inputs)), reference(box, *inputs), math.inf, dtype)


def test_ties_go_to_the_first_and_nan_is_passed_on(device, reference):
    x, w, g = torch.randint(3, (9, 31)).float(), torch.randint(3, (7, 31)).float(), torch.randn(9, 7)
    compare(
        linear(math.inf)(x.to(device), w.to(device), g.to(device)), reference(linear(math.inf), x, w, g), 8.0, x.dtype
    )
    x[4, 5] = math.nan
    for p in (math.inf, 8.0, 30.5):
        assert torch.equal(ld.dist(x.to(device), w.to(device), p).isnan().all(1).cpu(), torch.arange(9) == 4)


@pytest.mark.parametrize("p", [2.0, 8.0, math.inf])
def test_adam(device, p, reference):
    def step(*tensors):
        w, grad, mean, square = (each.clone() for each in tensors)
        adam_step(w, grad, mean, square, lr=0.02, betas=(0.9, 0.99), eps=1e-10, decay=0.005, p=p, step=3)
        return w, mean, square

    tensors = torch.randn(13, 67), torch.randn(13, 67), torch.randn(13, 67), torch.rand(13, 67)
    for one, other in zip(step(*(each.to(device) for each in tensors)), reference(step, *tensors), strict=True):
        torch.testing.assert_close(one.cpu(), other, rtol=1e-5, atol=1e-6)
