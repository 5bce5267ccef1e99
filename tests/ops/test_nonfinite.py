"""NaN and infinity are never swallowed: not by a max, not by pruning, not in any lane, on any path."""

import math

import pytest
import torch

import linfdist as ld

from . import truth

NAN, INF = math.nan, math.inf
POWERS = [1, 1.5, 2, 8, 8.5, 12, 100, 1000, INF]
ROWS = [1, 3, 16, 17, 31, 32, 63, 64, 65]
INPUTS, NEURONS = 37, 5


def data(rows, dtype=torch.float32):
    return torch.rand(rows, INPUTS, dtype=dtype), torch.randn(NEURONS, INPUTS, dtype=dtype)


def places(rows):
    """First, last and middle row with first, last and middle input."""
    return {(b, i) for b in (0, rows // 2, rows - 1) for i in (0, 7, 8, 32, INPUTS - 1)}


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("p", POWERS)
@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_in_x_it_reaches_its_row_and_no_other(backend, bad, p, rows):
    x, w = data(rows)
    clean = ld.dist(x, w, p)
    for b, i in places(rows):
        dirty = x.clone()
        dirty[b, i] = bad
        for y in (ld.dist(dirty, w, p), truth.step(dirty, w, torch.ones(rows, NEURONS), p)[0]):
            assert y[b].isnan().all() if math.isnan(bad) else (y[b] == INF).all()
            others = torch.arange(rows) != b
            torch.testing.assert_close(y[others], clean[others], rtol=1e-6, atol=0)


@pytest.mark.parametrize("rows", [1, 16, 17, 32, 65])
@pytest.mark.parametrize("p", POWERS)
@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_in_w_it_reaches_its_neuron_and_no_other(backend, dtype, bad, p, rows):
    x, w = data(rows, dtype)
    clean = ld.dist(x, w, p)
    for o in range(NEURONS):
        dirty = w.clone()
        dirty[o, 11 * o % INPUTS] = bad
        for y in (ld.dist(x, dirty, p), truth.step(x, dirty, torch.ones(rows, NEURONS, dtype=dtype), p)[0]):
            assert y[:, o].isnan().all() if math.isnan(bad) else (y[:, o] == INF).all()
            others = torch.arange(NEURONS) != o
            torch.testing.assert_close(y[:, others], clean[:, others], rtol=1e-6, atol=0)


@pytest.mark.parametrize("rows", [1, 17, 40])
@pytest.mark.parametrize("p", POWERS)
def test_infinity_minus_infinity_is_nan(backend, p, rows):
    x, w = data(rows)
    x[:, 3] = INF
    w[1, 3] = INF
    w[2, 3] = -INF
    y = ld.dist(x, w, p)
    assert y[:, 1].isnan().all()
    assert (y[:, [0, 2, 3, 4]] == INF).all()


@pytest.mark.parametrize("rows", [2, 17, 40])
@pytest.mark.parametrize("p", POWERS)
def test_nan_wins_over_infinity(backend, p, rows):
    for first, second in ((3, 20), (20, 3)):
        x, w = data(rows)
        x[1, first], x[1, second] = NAN, INF
        assert ld.dist(x, w, p)[1].isnan().all()


@pytest.mark.parametrize("rows", [1, 17, 40])
@pytest.mark.parametrize("p", POWERS)
def test_a_difference_that_overflows_is_infinite(backend, p, rows):
    """Finite inputs, infinite distance: the pruning and the powers must survive it."""
    x, w = data(rows)
    x[:, 3] = 3e38
    w[1, 3] = -3e38
    y = ld.dist(x, w, p)
    assert (y[:, 1] == INF).all()
    others = [0, 2, 3, 4]
    expected = truth.p_dist(x, w, p) if p < INF else truth.inf_dist(x, w).double()
    assert truth.relative_error(y[:, others], expected[:, others]) <= 1e-6


@pytest.mark.parametrize("rows", [3, 17, 40, 65])
def test_the_gradient_at_inf_is_nan_at_the_first_nan(backend, dtype, rows):
    x, w = data(rows, dtype)
    x[2, 9] = x[2, 30] = NAN
    x[1, 4] = -INF
    w[3, 20] = NAN
    g = truth.whole(rows, NEURONS, dtype=dtype)
    _, dx, dw = truth.step(x, w, g)
    expected_dx, expected_dw = truth.inf_gradients(x, w, g)
    truth.assert_same_bits(dx + 0.0, expected_dx + 0.0)
    truth.assert_same_bits(dw + 0.0, expected_dw + 0.0)


@pytest.mark.parametrize("rows", [3, 40, 65])
@pytest.mark.parametrize("p", POWERS[:-1])
def test_the_gradient_at_finite_p_is_nan_wherever_nan_enters(backend, dtype, p, rows):
    """One NaN among the inputs of a neuron makes its whole gradient NaN; other rows and neurons keep theirs."""
    x, w = data(rows, dtype)
    g = torch.rand(rows, NEURONS, dtype=dtype)
    dirty = x.clone()
    dirty[2, 9] = NAN
    _, dx, dw = truth.step(dirty, w, g, p)
    others = torch.arange(rows) != 2
    assert dx[2].isnan().all()
    assert dw.isnan().all()
    torch.testing.assert_close(dx[others], truth.step(x, w, g, p)[1][others], rtol=1e-3, atol=1e-4)
    dirty = w.clone()
    dirty[3, 9] = NAN
    _, dx, dw = truth.step(x, dirty, g, p)
    assert dx.isnan().all()
    assert dw[3].isnan().all()
    kept = [0, 1, 2, 4]
    torch.testing.assert_close(dw[kept], truth.step(x, w, g, p)[2][kept], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("p", [1, 2, 8, 12, 100])
def test_a_nan_gradient_propagates(backend, dtype, p):
    x, w = data(40, dtype)
    g = torch.ones(40, NEURONS, dtype=dtype)
    g[7, 2] = NAN
    _, dx, dw = truth.step(x, w, g, p)
    assert dx[7].isnan().any()
    assert dw[2].isnan().any()
    assert not dx[torch.arange(40) != 7].isnan().any()
    assert not dw[[0, 1, 3, 4]].isnan().any()


@pytest.mark.parametrize("rows", [1, 16, 17, 40, 65])
@pytest.mark.parametrize("where", ["lower", "upper", "w"])
def test_nan_in_a_box_propagates(backend, dtype, where, rows):
    for i in (0, 8, 36):
        lower, w = data(rows, dtype)
        upper = lower + 1
        {"lower": lower, "upper": upper, "w": w}[where][0, i] = NAN
        leaves = [t.detach().requires_grad_() for t in (lower, upper, w)]
        for near, far in (ld.dist_box(lower, upper, w), ld.dist_box(*leaves)):
            for bound in (near, far):
                hit = bound[:, 0] if where == "w" else bound[0]
                rest = bound[:, 1:] if where == "w" else bound[1:]
                assert hit.isnan().all()
                assert not rest.isnan().any()
        near, far = ld.dist_box(*leaves)
        (near + far).sum().backward()
        assert leaves[2].grad.isnan().any()


@pytest.mark.compiled
@pytest.mark.parametrize("p", [2, 8, 30.5, INF])
@pytest.mark.parametrize("bad", [NAN, INF])
def test_one_bad_number_leaves_the_rest_to_the_fast_kernels(backend, bad, p):
    """Other rows and neurons keep their bits, which a slower and more exact way of computing them would not."""
    x, w = 3 * torch.randn(70, 300), torch.randn(50, 300)
    dirty, spoilt = x.clone(), w.clone()
    dirty[5, 7], spoilt[3, 9] = bad, bad
    rows, neurons = torch.arange(70) != 5, torch.arange(50) != 3
    truth.assert_same_bits(ld.dist(dirty, w, p)[rows], ld.dist(x[rows], w, p))
    truth.assert_same_bits(ld.dist(x, spoilt, p)[:, neurons], ld.dist(x, w[neurons], p))


@pytest.mark.parametrize("rows", [1, 17, 40])
def test_an_infinite_box(backend, dtype, rows):
    lower, w = data(rows, dtype)
    lower, upper = lower.clone(), lower + 1
    lower[:, 4], upper[:, 4] = -INF, INF
    near, far = ld.dist_box(lower, upper, w)
    assert (far == INF).all()
    rest = torch.arange(INPUTS) != 4
    truth.assert_same_bits(near, truth.box_dist(lower[:, rest], upper[:, rest], w[:, rest])[0])


@pytest.mark.parametrize("p", [1, 2, 8, 30.5, INF])
@pytest.mark.parametrize("bad", [NAN, INF])
def test_in_an_image_it_reaches_the_windows_that_see_it(backend, bad, p):
    x, w = torch.rand(2, 3, 7, 6), torch.randn(4, 3, 3, 3)
    x[1, 2, 3, 3] = bad
    sees = torch.nn.functional.max_pool2d((~x.isfinite()).float().amax(1, keepdim=True), 3, 1, 1).bool()
    leaf = x.clone().requires_grad_()
    for y in (ld.dist_conv2d(x, w, p, padding=1), ld.dist_conv2d(leaf, w, p, padding=1)):
        hit = y.isnan() if math.isnan(bad) else y == INF
        assert torch.equal(hit, sees.expand_as(y))
    near, far = ld.dist_box_conv2d(x, x, w, padding=1)
    for bound in (near, far):
        hit = bound.isnan() if math.isnan(bad) else bound == INF
        assert torch.equal(hit, sees.expand_as(bound))
