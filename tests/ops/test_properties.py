"""What the distance is, whatever the numbers: the facts the certificates stand on."""

import math

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

import linfdist as ld

UNIT = 2.0**-24  # rounding of float32
SIDES = st.integers(1, 40)

whole_numbers = st.integers(-(2**20), 2**20).map(float)
floats = st.floats(-(2.0**60), 2.0**60, width=32, allow_subnormal=True)


@st.composite
def problems(draw, elements, matrices=1):
    """`matrices` of (B, I) and one w (O, I); sizes cross the native paths' borders through repetition."""
    rows, inputs, neurons = draw(SIDES), draw(SIDES), draw(st.integers(1, 8))
    shapes = [(rows, inputs)] * matrices + [(neurons, inputs)]
    return [torch.from_numpy(draw(hnp.arrays(np.float32, shape, elements=elements, fill=elements))) for shape in shapes]


@pytest.fixture(autouse=True)
def _default_backend(monkeypatch):
    monkeypatch.delenv("LINFDIST_BACKEND", raising=False)


@given(problems(whole_numbers, matrices=2))
def test_1_lipschitz_in_x_exactly(tensors):
    """Fact 3.4, on integers, where float32 is exact."""
    x, other, w = tensors
    moved = (x - other).abs().amax(-1, keepdim=True)
    assert ((ld.dist(x, w) - ld.dist(other, w)).abs() <= moved).all()


@given(problems(whole_numbers))
def test_1_lipschitz_in_w_exactly(tensors):
    x, w = tensors
    other = w.flip(0) - 3
    moved = (w - other).abs().amax(-1)
    assert ((ld.dist(x, w) - ld.dist(x, other)).abs() <= moved).all()


@given(problems(floats, matrices=2))
def test_1_lipschitz_up_to_rounding(tensors):
    """Each output carries one rounding, at most a unit of itself."""
    x, other, w = tensors
    y, y_other = ld.dist(x, w).double(), ld.dist(other, w).double()
    moved = (x.double() - other.double()).abs().amax(-1, keepdim=True)
    assert ((y - y_other).abs() <= (moved + UNIT * (y + y_other)) * (1 + 1e-12)).all()


@given(
    problems(floats),
    st.sampled_from([(1, 1.5), (1.5, 2), (2, 3), (3, 8), (8, 12), (12, 100), (100, 1000), (1000, math.inf)]),
)
def test_never_grows_with_p(tensors, powers):
    x, w = tensors
    low, high = (ld.dist(x, w, p).double() for p in powers)
    quantum = 2.0**-149
    assert (high <= low * (1 + 2e-6) + quantum).all()


@given(problems(floats), st.sampled_from([1.0, 2.0, 8.0, 30.5, 1000.0]))
def test_between_the_largest_difference_and_its_bound(tensors, p):
    x, w = tensors
    inf, y = ld.dist(x, w).double(), ld.dist(x, w, p).double()
    quantum = 2.0**-149
    assert (y >= inf * (1 - 1e-6) - quantum).all()
    assert (y <= inf * x.shape[1] ** (1 / p) * (1 + 1e-6) + quantum).all()


@given(problems(floats), st.integers(-30, 30))
def test_scales_exactly_by_powers_of_two(tensors, k):
    x, w = tensors
    assume(all((t[t != 0].abs() > 2.0**-70).all() for t in (x, w)))  # no underflow
    assert torch.equal(ld.dist(x * 2.0**k, w * 2.0**k), ld.dist(x, w) * 2.0**k)


@given(problems(floats), st.randoms(use_true_random=False))
def test_the_order_of_inputs_does_not_matter(tensors, random):
    x, w = tensors
    order = list(range(x.shape[1]))
    random.shuffle(order)
    assert torch.equal(ld.dist(x[:, order], w[:, order]), ld.dist(x, w))


@given(problems(floats))
def test_symmetric(tensors):
    x, w = tensors
    assert torch.equal(ld.dist(x, w), ld.dist(w, x).T)
    assert torch.equal(ld.dist(-x, -w), ld.dist(x, w))


@given(problems(whole_numbers), st.integers(-(2**20), 2**20))
def test_moves_with_its_inputs_exactly(tensors, shift):
    x, w = tensors
    assert torch.equal(ld.dist(x + shift, w + shift), ld.dist(x, w))


@given(problems(floats, matrices=3))
def test_a_box_encloses_its_points_without_slack(tensors):
    a, b, c, w = tensors
    lower, upper = torch.minimum(a, b), torch.maximum(a, b)
    near, far = ld.dist_box(lower, upper, w)
    for x in (a, b, c.clamp(lower, upper), (a / 2 + b / 2).clamp(lower, upper)):
        y = ld.dist(x, w)
        assert (near <= y).all()
        assert (y <= far).all()


@given(problems(floats, matrices=4))
def test_a_larger_box_has_wider_bounds(tensors):
    a, b, c, d, w = tensors
    inner = torch.minimum(a, b), torch.maximum(a, b)
    outer = torch.minimum(inner[0], torch.minimum(c, d)), torch.maximum(inner[1], torch.maximum(c, d))
    near, far = ld.dist_box(*inner, w)
    nearer, farther = ld.dist_box(*outer, w)
    assert (nearer <= near).all()
    assert (far <= farther).all()


@given(problems(floats), st.sampled_from([1.0, 1.5, 2.0, 8.0, 12.5, 300.0, math.inf]))
def test_the_gradient_is_a_unit_vector_of_the_dual_norm(tensors, p):
    """Of one neuron: sum |t|^q = 1 with 1/p + 1/q = 1; so no step of training can blow up."""
    x, w = tensors
    x = x.requires_grad_()
    y = ld.dist(x, w[:1], p)
    (t,) = torch.autograd.grad(y.sum(), x)
    t, y = t.double().abs(), y.detach()[:, 0]
    t = t[(y > 2.0**-100) & (y < 2.0**100)]  # a denormal y has too few digits for this
    norm = t.amax(-1) if p == 1 else t.sum(-1) if p == math.inf else (t ** (p / (p - 1))).sum(-1)
    torch.testing.assert_close(norm, torch.ones_like(norm), rtol=1e-3, atol=0)
