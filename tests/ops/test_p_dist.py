"""Finite p: the promised accuracy against float64, for every p and for data that is hard on it."""

import pytest
import torch

import linfdist as ld
from linfdist.ops.backends import native

from . import truth

PRODUCTS = [10, 12, 14, 16, 20, 24, 28, 32]
POWERS = [1, 1.01, 1.5, 2, 3, 4, 5, 6, 7, 7.5, 8, 8.5, 9, 11, *PRODUCTS, 15.9, 23, 30.5, 45.5, 60, 100, 300, 1000]
SHAPES = [(1, 1, 1), (3, 1, 2), (16, 31, 5), (17, 3, 1), (63, 37, 2), (64, 64, 16), (65, 129, 33)]
ROWS, INPUTS, NEURONS = 41, 67, 23  # more than 32 rows: the native backend leaves out what cannot matter

FORWARD = {torch.float32: 1e-6, torch.float64: 1e-13}
GRADIENT = {torch.float32: 5e-4, torch.float64: 1e-10}


def constant_rows(dtype):
    """All |x - w| of a pair are equal: rounding errors have one sign and add up."""
    return torch.rand(ROWS, 1).expand(ROWS, INPUTS).to(dtype), torch.randn(NEURONS, 1).expand(NEURONS, INPUTS).to(dtype)


def one_dominates(dtype):
    x = torch.rand(ROWS, INPUTS, dtype=dtype)
    x[:, 5] = 50
    return x, torch.randn(NEURONS, INPUTS, dtype=dtype)


def zeros_among(dtype):
    """Many differences are exactly 0, whose powers and gradients are 0 for p > 1."""
    x, w = torch.rand(ROWS, INPUTS, dtype=dtype), torch.randn(NEURONS, INPUTS, dtype=dtype)
    x[:, ::2] = 0
    w[:, ::2] = 0
    return x, w


def mixed_scales(dtype):
    """Rows and neurons of very different magnitude in one batch."""
    sizes = 10.0 ** torch.arange(-36, 31)
    x = torch.randn(ROWS, INPUTS, dtype=dtype) * sizes[torch.randint(len(sizes), (ROWS, 1))]
    w = torch.randn(NEURONS, INPUTS, dtype=dtype) * sizes[torch.randint(len(sizes), (NEURONS, 1))]
    return x.to(dtype), w.to(dtype)


def normal(dtype, x_scale=3.0, w_scale=1.0):
    return x_scale * torch.randn(ROWS, INPUTS, dtype=dtype), w_scale * torch.randn(NEURONS, INPUTS, dtype=dtype)


DATA = {
    "uniform and normal": lambda dt: (torch.rand(ROWS, INPUTS, dtype=dt), torch.randn(NEURONS, INPUTS, dtype=dt)),
    "normal": normal,
    "constant rows": constant_rows,
    "nearly equal": lambda dt: (1 + 1e-3 * torch.rand(ROWS, INPUTS, dtype=dt), torch.zeros(NEURONS, INPUTS, dtype=dt)),
    "heavy tails": lambda dt: (normal(dt)[0] / torch.rand(ROWS, INPUTS, dtype=dt) ** 3, normal(dt)[1]),
    "one dominates": one_dominates,
    "zeros among": zeros_among,
    "integers": lambda dt: (truth.whole(ROWS, INPUTS, dtype=dt), truth.whole(NEURONS, INPUTS, dtype=dt)),
    "1e-30": lambda dt: normal(dt, 3e-30, 1e-30),
    "1e30": lambda dt: normal(dt, 3e30, 1e30),
    "mixed scales": mixed_scales,
}  # fmt: skip


def check(x, w, p):
    g = torch.randn(x.shape[0], w.shape[0], dtype=x.dtype)
    y, dx, dw = truth.step(x, w, g, p)
    expected = truth.p_dist(x, w, p)
    assert y.dtype == x.dtype
    assert truth.relative_error(y, expected) <= FORWARD[x.dtype]
    truth.assert_same_bits(ld.dist(x, w, p), y)
    expected_dx, expected_dw = truth.p_gradients(x, w, g, p)
    assert truth.error_of_largest(dx, expected_dx) <= GRADIENT[x.dtype]
    assert truth.error_of_largest(dw, expected_dw) <= GRADIENT[x.dtype]


@pytest.mark.parametrize("p", POWERS)
@pytest.mark.parametrize("data", DATA)
def test_accuracy_in_float32(backend, data, p):
    check(*DATA[data](torch.float32), p)


@pytest.mark.parametrize("p", [1, 1.01, 2, 7.5, 8, 30.5, 300, 1000])
@pytest.mark.parametrize("data", ["uniform and normal", "constant rows", "zeros among", "mixed scales"])
def test_accuracy_in_float64(backend, data, p):
    check(*DATA[data](torch.float64), p)


@pytest.mark.parametrize("p", [1.5, 3, 8, 12, 30.5, 100, 1000])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_accuracy_on_any_shape(backend, shape, p):
    rows, inputs, neurons = shape
    check(torch.rand(rows, inputs), torch.randn(neurons, inputs), p)


@pytest.mark.compiled
@pytest.mark.parametrize("p", [1, 2, 3, 7.5, 8, 30.5, 1000])
@pytest.mark.parametrize("value", [0.1, 0.7, 1 / 3])
def test_the_error_does_not_grow_with_the_number_of_inputs(backend, p, value):
    """Equal terms: a plain float32 sum of 20,011 of them drifts by far more than 1e-6."""
    check(torch.full((2, 20011), value), torch.full((3, 20011), -0.3), p)


@pytest.mark.compiled
@pytest.mark.parametrize("p", [7.3, 8.75, 11.5, 30.5, 100])
@pytest.mark.parametrize("size", [2.0**-22, 2.0**-17, 1e-3, 0.1])
def test_many_small_terms_beside_a_large_one(backend, size, p):
    """Absolute errors of small terms add up: each must fall with the number of inputs, 65,536 here."""
    w = torch.full((1, 1 << 16), size ** (1 / p))
    w[:, 7] = 1
    check(torch.zeros(33, 1 << 16), w, p)


@pytest.mark.parametrize("grad", [1e-21, 1e-30, 1e25])
@pytest.mark.parametrize("size", [1e-3, 1.0, 500.0])
@pytest.mark.parametrize("p", [2, 5, 8, 12])
def test_gradients_of_any_size(backend, p, size, grad):
    """grad / y^(p-1) over- or underflows in float32 long before the gradient itself does."""
    x, w = size * torch.randn(ROWS, INPUTS), size * torch.randn(NEURONS, INPUTS)
    g = grad * torch.randn(ROWS, NEURONS)
    _, dx, dw = truth.step(x, w, g, p)
    for actual, expected in zip((dx, dw), truth.p_gradients(x, w, g, p), strict=True):
        assert truth.error_of_largest(actual, expected) <= GRADIENT[torch.float32]


@pytest.mark.skipif(bool(native.missing()), reason=f"native: {native.missing()}")
@pytest.mark.parametrize("less", [0, 1, 2])
def test_no_power_of_a_training_ramp_takes_the_slow_way(less):
    """Above 8, each power of forward, backward and decay is a product or a series, never exp2 and log2."""
    for p in [*range(9, 40), 9.3, 11.01, 30.5, 100, 1000]:
        whole = p == int(p) and p - less <= 8
        expected = "product" if whole or p in (10, 12, 14, 16, 20, 24, 28, 32) else "series"
        for inputs in (64, 784, 3072):
            assert torch.ops.linfdist_native.power(p, less, inputs) == expected, p


@pytest.mark.parametrize("p", [1.25, 8, 12.5, 40, 1000])
def test_every_power_of_a_training_ramp(backend, p):
    """p moves with every step: powers near and between the tabulated ones are as good."""
    x, w = DATA["uniform and normal"](torch.float32)
    for factor in (0.9701, 1.0009, 1.0303, 1.1):
        check(x, w, min(max(1.0, p * factor), 1000.0))


@pytest.mark.parametrize("data", ["uniform and normal", "normal", "constant rows", "mixed scales"])
def test_ten_thousand_is_finite_and_sane(backend, data):
    x, w = DATA[data](torch.float32)
    g = torch.randn(ROWS, NEURONS)
    y, dx, dw = truth.step(x, w, g, 1e4)
    assert truth.relative_error(y, truth.p_dist(x, w, 1e4)) <= 1e-6
    expected_dx, expected_dw = truth.p_gradients(x, w, g, 1e4)
    assert truth.error_of_largest(dx, expected_dx) <= 2e-2
    assert truth.error_of_largest(dw, expected_dw) <= 2e-2


@pytest.mark.parametrize("p", [1, 1.5, 2, 8, 12, 100, 1000])
def test_denormal_distances(backend, p):
    """Values are right to the last denormal digit, which is all there is; gradients stay within their bound."""
    quantum = 2.0**-149
    x, w = 50 * quantum * truth.whole(ROWS, INPUTS), 50 * quantum * truth.whole(NEURONS, INPUTS)
    g = torch.ones(ROWS, NEURONS)
    y, dx, dw = truth.step(x, w, g, p)
    expected = truth.p_dist(x, w, p)
    assert ((y.double() - expected).abs() <= 1e-6 * expected + quantum).all()
    assert (dx.abs() <= 1.2 * NEURONS).all()
    assert (dw.abs() <= 1.2 * ROWS).all()


@pytest.mark.parametrize("p", [1, 1.01, 1.05, 1.1, 1.5, 2, 8, 30.5])
@pytest.mark.parametrize("small", [1e-20, 1e-37, 1e-40])
def test_a_ratio_too_small_for_float32(backend, p, small):
    """Near p = 1 even a tiny difference has a gradient of weight: 0.4 at |d| = 1e-40, p = 1.01."""
    check(torch.tensor([[1.0, small, 0.5]]).repeat(40, 1), torch.zeros(2, 3), p)


@pytest.mark.parametrize("p", [1, 1.5, 2, 3, 8, 8.5, 12, 100, 1000])
@pytest.mark.parametrize("rows", [3, 40, 70])
def test_distance_zero_has_zero_gradient(backend, dtype, rows, p):
    """Neuron 0 lies on every row, neuron 1 on none: it gets its full gradient all the same."""
    x = torch.full((rows, 19), 0.5, dtype=dtype)
    w = torch.stack([x[0], x[0] - 0.25])
    g = torch.tensor([[float("inf"), 1.0]], dtype=dtype).expand(rows, 2)
    y, dx, dw = truth.step(x, w, g, p)
    assert (y[:, 0] == 0).all()
    assert (dw[0] == 0).all()
    slope = 19.0 ** (1 / p - 1)
    assert truth.error_of_largest(dx, torch.full((rows, 19), slope, dtype=torch.float64)) <= GRADIENT[dtype]
    assert truth.error_of_largest(dw[1], torch.full((19,), -rows * slope, dtype=torch.float64)) <= GRADIENT[dtype]


@pytest.mark.parametrize("p", [1, 2, 8, 12, 100])
def test_the_gradient_of_one_coordinate_is_its_sign(backend, dtype, p):
    x, w = torch.randn(35, 1, dtype=dtype), torch.randn(5, 1, dtype=dtype)
    y, dx, dw = truth.step(x, w, torch.ones(35, 5, dtype=dtype), p)
    assert truth.relative_error(y, truth.inf_dist(x, w).double()) <= FORWARD[dtype]
    assert truth.error_of_largest(dx, (x - w.T).sign().sum(1, keepdim=True).double()) <= GRADIENT[dtype]
    assert truth.error_of_largest(dw, -(x - w.T).sign().sum(0)[:, None].double()) <= GRADIENT[dtype]


@pytest.mark.parametrize("p", [1, 1.5, 8, 30.5])
@pytest.mark.parametrize("need", [(True, False), (False, True)], ids=["x alone", "w alone"])
def test_one_gradient_alone_is_that_of_both(backend, need, p):
    x, w = DATA["uniform and normal"](torch.float32)
    g = torch.randn(ROWS, NEURONS)
    both = truth.step(x, w, g, p)[1:]
    x, w = x.requires_grad_(need[0]), w.requires_grad_(need[1])
    ld.dist(x, w, p).backward(g)
    for tensor, needed, expected in zip((x, w), need, both, strict=True):
        assert torch.equal(tensor.grad, expected) if needed else tensor.grad is None


@pytest.mark.parametrize("p", [2.0, 3.0, 8.0, 12.0])
def test_a_neuron_has_the_gradient_that_it_has_alone(p):
    """Neurons are taken two at a time: beside one that nobody asks for, or one that needs care, nothing may change."""
    x, w = normal(torch.float32)
    w[3], w[8] = 1e25, torch.nan
    g = torch.randn(ROWS, NEURONS)
    g[:, [1, 6, 7, 12]] = 0
    w.requires_grad_()
    (together,) = torch.autograd.grad(ld.dist(x, w, p), w, g)
    for o in range(NEURONS):
        alone = w[o : o + 1].detach().requires_grad_()
        (expected,) = torch.autograd.grad(ld.dist(x, alone, p), alone, g[:, o : o + 1])
        torch.testing.assert_close(together[o : o + 1], expected, rtol=1e-5, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("p", "apart"), [(4, 1e13), (8, 1e6), (12, 1e4), (16, 1e3), (20, 300), (32, 40), (100, 40)])
def test_a_row_that_nobody_asks_for_may_be_far_away(dtype, p, apart):
    """Its power would overflow, and times a gradient of 0 be NaN."""
    x = torch.ones(2, 4, dtype=dtype)
    x[1] = apart
    w = torch.zeros(1, 4, dtype=dtype)
    x.requires_grad_(), w.requires_grad_()
    dx, dw = torch.autograd.grad(ld.dist(x, w, p), (x, w), torch.tensor([[1.0], [0.0]], dtype=dtype))
    expected = torch.full((4,), 4 ** (1 / p - 1), dtype=dtype)
    torch.testing.assert_close(dx, torch.stack([expected, torch.zeros_like(expected)]), rtol=1e-5, atol=0)
    torch.testing.assert_close(dw, -expected[None], rtol=1e-5, atol=0)


@pytest.mark.parametrize("p", [50, 100, 300, 1000])
@pytest.mark.parametrize(("dtype", "size"), [(torch.float32, 1e15), (torch.float64, 1e31), (torch.float64, 1e100)])
def test_large_numbers_have_gradients_at_large_p(dtype, size, p):
    x = (size * torch.tensor([[1.0, 2.0, 3.0]], dtype=dtype)).expand(40, 3).contiguous().requires_grad_()
    (dx,) = torch.autograd.grad(ld.dist(x, torch.zeros(2, 3, dtype=dtype), p).sum(), x)
    torch.testing.assert_close(dx[:, 2], torch.full((40,), 2.0, dtype=dtype), rtol=1e-5, atol=0)
    assert dx[:, :2].max() < 1e-5
