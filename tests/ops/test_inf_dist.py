"""p = inf: exact values and first arg-max gradients, on every backend and every path inside it."""

import pytest
import torch

import linfdist as ld
from linfdist.ops.backends import BACKENDS
from linfdist.ops.geometry import POINT

from . import truth

# (B, I, O): primes, powers of two and their neighbours; the native paths switch at 16, 32 and 64 rows.
SHAPES = [
    (1, 1, 1), (2, 1, 3), (1, 7, 1), (3, 5, 7), (13, 37, 11), (15, 31, 4), (16, 33, 5), (17, 31, 5), (31, 17, 19),
    (32, 64, 16), (33, 65, 17), (63, 67, 3), (64, 64, 64), (65, 127, 33), (97, 1, 41), (130, 200, 71), (257, 19, 2),
]  # fmt: skip


def identity_weights(inputs: int, neurons: int, dtype: torch.dtype) -> torch.Tensor:
    """The initialisation of the paper: -10 on the diagonal."""
    w = torch.randn(neurons, inputs, dtype=dtype)
    k = torch.arange(neurons)
    w[k, k % inputs] = -10
    return w


# Name: x and w. The native backend leaves out inputs that cannot be the maximum: none, most, or nearly all of them.
DATA = {
    "nothing to prune": lambda b, i, o, dt: (3 * torch.randn(b, i, dtype=dt), torch.randn(o, i, dtype=dt)),
    "most pruned": lambda b, i, o, dt: (torch.rand(b, i, dtype=dt), torch.randn(o, i, dtype=dt)),
    "identity": lambda b, i, o, dt: (torch.rand(b, i, dtype=dt), identity_weights(i, o, dt)),
    "integers": lambda b, i, o, dt: (truth.whole(b, i, dtype=dt, most=3), truth.whole(o, i, dtype=dt, most=3)),
    "rows repeat": lambda b, i, o, dt: (
        torch.randn(1, i, dtype=dt).repeat(b, 1),
        torch.randn(1, i, dtype=dt).repeat(o, 1),
    ),
    "scales from denormal to huge": lambda b, i, o, dt: (
        torch.randn(b, i, dtype=dt) * 10.0 ** torch.randint(-44, 38, (b, 1)),
        torch.randn(o, i, dtype=dt) * 10.0 ** torch.randint(-44, 38, (o, 1)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("data", DATA)
def test_values_and_gradients_are_exact(backend, dtype, data, shape):
    x, w = DATA[data](*shape, dtype)
    g = truth.whole(shape[0], shape[2], dtype=dtype)
    expected = truth.inf_dist(x, w)
    truth.assert_same_bits(ld.dist(x, w), expected)
    y, dx, dw = truth.step(x, w, g)
    truth.assert_same_bits(y, expected)
    expected_dx, expected_dw = truth.inf_gradients(x, w, g)
    assert torch.equal(dx, expected_dx)
    assert torch.equal(dw, expected_dw)


@pytest.mark.compiled
@pytest.mark.parametrize(("rows", "inputs", "neurons"), [(5, 4099, 3), (40, 2053, 67), (515, 301, 130)])
def test_larger_shapes(backend, dtype, rows, inputs, neurons):
    x, w = torch.rand(rows, inputs, dtype=dtype), torch.randn(neurons, inputs, dtype=dtype)
    g = truth.whole(rows, neurons, dtype=dtype)
    y, dx, dw = truth.step(x, w, g)
    truth.assert_same_bits(y, truth.inf_dist(x, w))
    truth.assert_same_bits(ld.dist(x, w), y)
    expected_dx, expected_dw = truth.inf_gradients(x, w, g)
    assert torch.equal(dx, expected_dx)
    assert torch.equal(dw, expected_dw)


@pytest.mark.parametrize("rows", [1, 16, 17, 32, 64, 65])
def test_first_index_wins_a_tie(backend, dtype, rows):
    x = torch.zeros(rows, 70, dtype=dtype)
    x[:, [3, 40, 69]] = torch.tensor([-2.0, 2.0, 2.0], dtype=dtype)
    x[:, 50] = 1.5
    _, dx, dw = truth.step(x, torch.zeros(5, 70, dtype=dtype), torch.ones(rows, 5, dtype=dtype))
    expected = torch.zeros(70, dtype=dtype)
    expected[3] = -1
    assert torch.equal(dx, (5 * expected).expand(rows, 70))
    assert torch.equal(dw, (-rows * expected).expand(5, 70))


@pytest.mark.parametrize("rows", [3, 16, 40, 70])
@pytest.mark.parametrize("value", [0.0, 1.0, -3.25, 1e-42])
def test_distance_zero_has_zero_gradient(backend, dtype, rows, value):
    x, w = torch.full((rows, 19), value, dtype=dtype), torch.full((4, 19), value, dtype=dtype)
    y, dx, dw = truth.step(x, w, torch.full((rows, 4), float("inf"), dtype=dtype))  # 0, not 0 * inf
    truth.assert_same_bits(y, torch.zeros(rows, 4, dtype=dtype))
    assert (dx == 0).all()
    assert (dw == 0).all()


@pytest.mark.parametrize("rows", [2, 16, 33, 66])
def test_minus_zero_counts_as_zero(backend, dtype, rows):
    zero, minus = torch.zeros(rows, 21, dtype=dtype), torch.full((3, 21), -0.0, dtype=dtype)
    for x, w in ((zero, minus), (-zero, -minus), (-zero, minus), (zero, -minus)):
        truth.assert_same_bits(ld.dist(x, w), torch.zeros(rows, 3, dtype=dtype))
        y, dx, _ = truth.step(x, w, torch.ones(rows, 3, dtype=dtype))
        truth.assert_same_bits(y, torch.zeros(rows, 3, dtype=dtype))
        assert (dx == 0).all()


@pytest.mark.parametrize("at", [0, 1, 62, 63, 64, 65, 128, 130])
@pytest.mark.parametrize("rows", [1, 16, 17, 32, 65])
def test_the_maximum_is_found_at_any_place(backend, rows, at):
    """One large entry, in every row elsewhere, so that no lane and no slice is forgotten."""
    x = torch.rand(rows, 131)
    places = (at + torch.arange(rows)) % 131
    x[torch.arange(rows), places] = 9.0 + torch.arange(rows)
    w = torch.rand(6, 131)
    truth.assert_same_bits(ld.dist(x, w), truth.inf_dist(x, w))
    _, dx, _ = truth.step(x, w, torch.ones(rows, 6))
    expected = torch.zeros(rows, 131)
    expected[torch.arange(rows), places] = 6
    assert torch.equal(dx, expected)


@pytest.mark.parametrize("need", [(True, False), (False, True)], ids=["x alone", "w alone"])
def test_one_gradient_alone_is_that_of_both(backend, need):
    x, w, g = torch.rand(37, 41), torch.randn(13, 41), torch.randn(37, 13)
    both = truth.step(x, w, g)[1:]
    x, w = x.requires_grad_(need[0]), w.requires_grad_(need[1])
    ld.dist(x, w).backward(g)
    for tensor, needed, expected in zip((x, w), need, both, strict=True):
        assert torch.equal(tensor.grad, expected) if needed else tensor.grad is None


@pytest.mark.parametrize("rows", [1, 16, 17, 40, 70])
def test_backends_name_the_same_arg_max(rows):
    """The code i, or ~i where x < w, is what the gradient and its users rely on."""
    probe = torch.empty(0)
    able = [backend for backend in BACKENDS.values() if not backend.unsupported(probe, probe)]
    x, w = torch.rand(rows, 53, 1, 1), torch.randn(29, 53, 1, 1)
    d = truth.difference(x.flatten(1), w.flatten(1))
    i = truth.first_argmax(d.abs())
    expected = torch.where(d.gather(-1, i[..., None]).squeeze(-1) < 0, ~i, i).int()
    for backend in able:
        _, where = backend.inf_dist_argmax(x, w, POINT)
        assert where.dtype == torch.int32
        assert torch.equal(where.flatten(1), expected)
