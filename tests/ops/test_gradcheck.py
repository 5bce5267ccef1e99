"""Numerical derivatives in float64, away from ties."""

import math

import pytest
import torch
from torch.autograd import gradcheck

import linfdist as ld

CONVOLUTION = {"stride": (2, 1), "padding": (1, 2), "dilation": (1, 2), "groups": 2}
IMAGES, KERNELS = (2, 4, 3, 4), (4, 2, 2, 2)  # small: each number costs two forward passes


def leaf(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


@pytest.mark.compiled
@pytest.mark.parametrize("p", [1, 1.5, 2, 3, 7.5, 12, 30.5, math.inf])
def test_dist(backend, p):
    assert gradcheck(lambda x, w: ld.dist(x, w, p), (leaf(5, 7), leaf(4, 7)))


@pytest.mark.compiled
@pytest.mark.parametrize("p", [1.5, 8, math.inf])
def test_dist_conv2d(backend, p):
    assert gradcheck(lambda x, w: ld.dist_conv2d(x, w, p, **CONVOLUTION), (leaf(*IMAGES), leaf(*KERNELS)))


@pytest.mark.compiled
def test_dist_box(backend):
    lower, w = leaf(5, 7), leaf(4, 7)
    upper = (lower + torch.rand_like(lower)).detach().requires_grad_()
    assert gradcheck(ld.dist_box, (lower, upper, w))


@pytest.mark.compiled
def test_dist_box_conv2d(backend):
    lower, w = leaf(*IMAGES), leaf(*KERNELS)
    upper = (lower + torch.rand_like(lower)).detach().requires_grad_()
    assert gradcheck(lambda l, u, k: ld.dist_box_conv2d(l, u, k, **CONVOLUTION), (lower, upper, w))  # noqa: E741
