"""Convolutions are distances of the unfolded image, for every geometry."""

import math
from random import Random

import pytest
import torch

import linfdist as ld

from . import truth

# x, w, and what `torch.nn.Conv2d` calls them
GEOMETRIES = {
    "1x1": ((3, 5, 4, 3), (7, 5, 1, 1), {}),
    "3x3": ((2, 3, 7, 6), (5, 3, 3, 3), {}),
    "padded": ((2, 3, 7, 6), (5, 3, 3, 3), {"padding": 1}),
    "strided": ((2, 3, 9, 8), (5, 3, 3, 3), {"stride": 2, "padding": 1}),
    "dilated": ((2, 3, 9, 8), (5, 3, 3, 3), {"dilation": 2, "padding": 2}),
    "uneven": ((3, 2, 9, 13), (4, 2, 3, 2), {"stride": (2, 1), "padding": (1, 2), "dilation": (1, 3)}),
    "groups": ((2, 6, 7, 6), (10, 3, 3, 3), {"groups": 2, "padding": 1}),
    "depthwise": ((2, 5, 6, 7), (15, 1, 3, 2), {"groups": 5, "stride": (1, 2), "padding": (2, 1)}),
    "padding wider than the kernel": ((2, 2, 3, 3), (3, 2, 2, 2), {"padding": 4}),
    "kernel as large as the image": ((4, 3, 5, 4), (6, 3, 5, 4), {}),
    "stride jumps over pixels": ((2, 3, 11, 11), (4, 3, 2, 2), {"stride": 5}),
    "rows and columns": ((2, 3, 1, 17), (4, 3, 1, 5), {"stride": (3, 1), "padding": (0, 2)}),
    "a pixel that no window meets": ((2, 3, 1, 1), (4, 3, 1, 1), {"stride": 3, "padding": 1}),
    "pixels that no window meets": ((40, 3, 1, 1), (4, 3, 1, 1), {"stride": (1, 4), "padding": (0, 2)}),
    "one channel, many positions": ((1, 1, 40, 37), (9, 1, 3, 3), {"padding": 1}),
    "more than one panel an image": ((2, 4, 15, 17), (34, 2, 3, 3), {"groups": 2, "padding": 1}),
}
POWERS = [1, 2, 7.5, 8, 12, 100]


@pytest.fixture(params=GEOMETRIES)
def problem(request, dtype):
    """(x, w, keywords), x in [0, 1] for every second geometry, so that lists are pruned in some and dense in others."""
    x_shape, w_shape, keywords = GEOMETRIES[request.param]
    even = list(GEOMETRIES).index(request.param) % 2 == 0
    x = torch.rand(x_shape, dtype=dtype) if even else 3 * torch.randn(x_shape, dtype=dtype)
    return x, torch.randn(w_shape, dtype=dtype), keywords


def leaves(*tensors):
    return [t.detach().requires_grad_() for t in tensors]


def test_inf_dist(backend, problem):
    x, w, keywords = problem
    (x, w), (x2, w2) = leaves(x, w), leaves(x, w)
    y = ld.dist_conv2d(x, w, **keywords)
    assert y.shape == torch.conv2d(x, w, **keywords).shape
    windows, kernels = truth.unfold(x2, w2, **keywords)
    expected = torch.stack([truth.inf_dist(a, b) for a, b in zip(windows, kernels, strict=True)])
    truth.assert_same_bits(y, truth.fold_outputs(expected, y))
    with torch.no_grad():
        truth.assert_same_bits(ld.dist_conv2d(x, w, **keywords), y)

    g = truth.whole(*y.shape, dtype=x.dtype)
    rows = g.unflatten(1, (len(kernels), -1)).permute(1, 0, 3, 4, 2).flatten(1, 3)  # (groups, N * positions, O/groups)
    terms = [truth.inf_gradients(*pair) for pair in zip(windows.detach(), kernels.detach(), rows, strict=True)]
    d_windows, d_kernels = (torch.stack(parts) for parts in zip(*terms, strict=True))
    expected_dx, expected_dw = torch.autograd.grad((windows, kernels), (x2, w2), (d_windows, d_kernels))
    dx, dw = torch.autograd.grad(y, (x, w), g)
    assert torch.equal(dx, expected_dx)
    assert torch.equal(dw, expected_dw)


@pytest.mark.parametrize("p", POWERS)
def test_p_dist(backend, problem, p):
    x, w, keywords = problem
    (x, w), (x2, w2) = leaves(x, w), leaves(x.double(), w.double())
    y = ld.dist_conv2d(x, w, p, **keywords)
    windows, kernels = truth.unfold(x2, w2, **keywords)
    pairs = list(zip(windows, kernels, strict=True))
    expected = truth.fold_outputs(torch.stack([truth.p_dist(a, b, p) for a, b in pairs]), y)
    double = x.dtype == torch.float64
    assert truth.relative_error(y, expected) <= (1e-13 if double else 1e-6)

    g = torch.randn_like(y)
    rows = g.unflatten(1, (len(kernels), -1)).permute(1, 0, 3, 4, 2).flatten(1, 3)
    terms = [truth.p_gradients(a, b, r, p) for (a, b), r in zip(pairs, rows, strict=True)]
    d_windows, d_kernels = (torch.stack(parts).detach() for parts in zip(*terms, strict=True))
    expected_dx, expected_dw = torch.autograd.grad((windows, kernels), (x2, w2), (d_windows, d_kernels))
    dx, dw = torch.autograd.grad(y, (x, w), g)
    assert truth.error_of_largest(dx, expected_dx) <= (1e-10 if double else 5e-4)
    assert truth.error_of_largest(dw, expected_dw) <= (1e-10 if double else 5e-4)


def test_box_dist(backend, problem):
    x, w, keywords = problem
    lower, upper, w = leaves(x, x + 0.5 * torch.rand_like(x), w)
    near, far = ld.dist_box_conv2d(lower, upper, w, **keywords)
    low, kernels = truth.unfold(lower, w, **keywords)
    high, _ = truth.unfold(upper, w, **keywords)
    bounds = [truth.box_dist(*each) for each in zip(low, high, kernels, strict=True)]
    expected = [truth.fold_outputs(torch.stack(parts), near) for parts in zip(*bounds, strict=True)]
    for actual, bound in zip((near, far), expected, strict=True):
        truth.assert_same_bits(actual, bound)
    with torch.no_grad():
        for actual, bound in zip(ld.dist_box_conv2d(lower, upper, w, **keywords), expected, strict=True):
            truth.assert_same_bits(actual, bound)

    g = truth.whole(*near.shape, dtype=x.dtype), truth.whole(*near.shape, dtype=x.dtype)
    right = torch.autograd.grad(expected, (lower, upper, w), g)  # no ties in this data but at 0
    for actual, gradient in zip(torch.autograd.grad((near, far), (lower, upper, w), g), right, strict=True):
        assert torch.equal(actual, gradient)


def any_geometry(random):
    """Small images, where the corners of all sizes meet: kernels, steps and paddings may be larger than the image."""
    groups, height, width = random.randint(1, 2), *random.choice([(1, 1), (1, 1), (1, 4), (3, 1), (2, 3), (4, 4)])
    stride, padding = [random.randint(1, 5) for _ in "hw"], [random.choice([0, 0, 1, 2, 3]) for _ in "hw"]
    dilation = [random.randint(1, 3) for _ in "hw"]
    kernel = []
    for size, pad, step in zip((height, width), padding, dilation, strict=True):
        most = (size + 2 * pad - 1) // step + 1  # of the kernels that fit
        kernel.append(random.choice([1, random.randint(1, min(3, most))]))
    rows, channels, neurons = random.choice([1, 3, 17, 40]), random.randint(1, 3), random.randint(1, 3)
    keywords = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    return (rows, groups * channels, height, width), (groups * neurons, channels, *kernel), keywords


@pytest.mark.parametrize("seed", range(4))
def test_any_geometry_is_that_of_the_reference(monkeypatch, backend, seed):
    """Values, gradients and boxes of 50 random geometries per seed; whole numbers, so that p = inf has no rounding."""
    if backend == "reference":
        pytest.skip("it is what the others are compared with")
    random = Random(seed)
    for _ in range(3 if backend == "triton" else 50):  # its interpreter takes a second for each
        x_shape, w_shape, keywords = any_geometry(random)
        x, w = truth.whole(*x_shape) + random.choice([0, 20]), truth.whole(*w_shape)  # 20: padding is far away
        results = []
        for name in ("reference", backend):
            monkeypatch.setenv("LINFDIST_BACKEND", name)
            a, b = leaves(x, w)
            for p in (math.inf, 1):
                y = ld.dist_conv2d(a, b, p, **keywords)
                g = torch.ones_like(y)
                results.append([y, *torch.autograd.grad(y, (a, b), g)])
            low, b = leaves(x, w)
            bounds = ld.dist_box_conv2d(low, low + 3, b, **keywords)
            results.append([*bounds, *torch.autograd.grad(bounds, (low, b), (g, g))])
        for expected, actual in zip(results[:3], results[3:], strict=True):
            for one, other in zip(expected, actual, strict=True):
                tolerance = 1e-5 if actual is results[4] else 0.0  # p = 1
                assert torch.allclose(one, other, tolerance, 10 * tolerance), (x_shape, w_shape, keywords)


@pytest.mark.parametrize("p", [1, 8, 30.5, math.inf])
def test_an_image_without_its_batch(backend, p):
    x, w = torch.rand(3, 6, 7), torch.randn(4, 3, 3, 3)
    assert torch.equal(ld.dist_conv2d(x, w, p, padding=1), ld.dist_conv2d(x[None], w, p, padding=1)[0])
    for one, batch in zip(ld.dist_box_conv2d(x, x + 1, w), ld.dist_box_conv2d(x[None], x[None] + 1, w), strict=True):
        assert torch.equal(one, batch[0])


@pytest.mark.parametrize("p", [1, 8, 30.5, math.inf])
def test_a_linear_layer_is_a_1x1_convolution_of_a_1x1_image(backend, dtype, p):
    x, w = torch.rand(40, 31, dtype=dtype), torch.randn(7, 31, dtype=dtype)
    assert torch.equal(ld.dist_conv2d(x[..., None, None], w[..., None, None], p)[..., 0, 0], ld.dist(x, w, p))


@pytest.mark.parametrize("p", [2, 8, 30.5, math.inf])
def test_padding_is_the_value_zero(backend, p):
    """A window that sees nothing but padding has the norm of its kernel, and its gradient reaches w alone."""
    x = torch.full((1, 2, 1, 1), 0.5, requires_grad=True)
    w = torch.randn(3, 2, 1, 1, requires_grad=True)
    y = ld.dist_conv2d(x, w, p, padding=2)
    norms = torch.linalg.vector_norm(w, ord=p, dim=1)
    torch.testing.assert_close(y[0, :, 0, 0], norms[:, 0, 0])
    dx, dw = torch.autograd.grad(y[0, :, 0, 0].sum(), (x, w))
    assert (dx == 0).all()
    torch.testing.assert_close(dw, torch.autograd.grad(norms.sum(), w)[0])


@pytest.mark.parametrize("p", [1, 8, 30.5, math.inf])
@pytest.mark.parametrize(
    ("x_shape", "w_shape", "y_shape"),
    [
        ((0, 3, 5, 5), (2, 3, 3, 3), (0, 2, 3, 3)),
        ((2, 0, 5, 5), (4, 0, 3, 3), (2, 4, 3, 3)),
        ((2, 3, 5, 5), (0, 3, 3, 3), (2, 0, 3, 3)),
    ],
    ids=["no image", "no channel", "no kernel"],
)  # fmt: skip
def test_empty(backend, dtype, p, x_shape, w_shape, y_shape):
    x, w = leaves(torch.randn(x_shape, dtype=dtype), torch.randn(w_shape, dtype=dtype))
    y = ld.dist_conv2d(x, w, p)
    assert y.shape == y_shape
    assert (y == 0).all()
    y.sum().backward()
    assert (x.grad == 0).all()
    assert (w.grad == 0).all()


@pytest.mark.parametrize("p", [2, 30.5, math.inf])
def test_channels_last_images(backend, p):
    x, w = torch.rand(3, 4, 7, 6), torch.randn(5, 4, 3, 3)
    last = torch.channels_last
    y = ld.dist_conv2d(x.to(memory_format=last), w.to(memory_format=last), p, padding=1)
    assert torch.equal(y, ld.dist_conv2d(x, w, p, padding=1))


@pytest.mark.compiled
def test_larger_image(backend):
    """Several panels, tasks and slices: 16 -> 40 channels, 3x3, 24x24."""
    x, w = torch.rand(3, 16, 24, 24), torch.randn(40, 16, 3, 3)
    windows, kernels = truth.unfold(x, w, padding=1)
    y = ld.dist_conv2d(x, w, padding=1)
    truth.assert_same_bits(y, truth.fold_outputs(truth.inf_dist(windows[0], kernels[0])[None], y))
    y = ld.dist_conv2d(x, w, 8, padding=1)
    assert truth.relative_error(y, truth.fold_outputs(truth.p_dist(windows[0], kernels[0], 8)[None], y)) <= 1e-6
