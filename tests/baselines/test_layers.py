"""Conventional layers: what they declare of rounding, Lipschitz constants and boxes is true of what they compute."""

from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from linfdist.baselines import Conv2d, Linear, ReLU, ReLUNet, Scores, sized
from linfdist.baselines.networks import SIZES
from linfdist.bounds import Forms, bare_box, pull_back
from linfdist.bounds.forms import lowest
from linfdist.nn import Box, Normalize, Stack

from ..nn.flushing import flushing
from .nets import inside

SEEDS = st.integers(0, 10**6)


def in_some_order(layer, x, order):
    """The sums of a linear layer, one rounded product and addition after the other, in that order."""
    total = torch.zeros(len(x), len(layer.weight), dtype=x.dtype)
    for k in order.tolist():
        total = total + x[:, k, None] * layer.weight[None, :, k]
    return total + layer.bias


def exact(layer, x):
    """The outputs of a linear layer for one input, in exact arithmetic."""
    weight, bias = layer.weight.tolist(), layer.bias.tolist()
    return [
        sum((Fraction(w) * Fraction(v) for w, v in zip(row, x.tolist(), strict=True)), Fraction(b))
        for row, b in zip(weight, bias, strict=True)
    ]


@settings(max_examples=12)
@given(SEEDS, st.sampled_from([1, 3, 97]), st.sampled_from([1e-22, 1.0, 1e9]), st.sampled_from([0.0, 1e-7, 0.5]))
@torch.no_grad()
def test_boxes_hold_in_every_order_of_summation(seed, inputs, scale, width):
    torch.manual_seed(seed)
    layer = Linear(inputs, 5).eval()
    x = scale * torch.randn(3, inputs)
    box = layer.forward_box(Box(x - width * scale, x + width * scale))
    at = x + width * scale * (2 * torch.rand_like(x) - 1)
    at = torch.minimum(torch.maximum(at, x - width * scale), x + width * scale)
    for order in (torch.arange(inputs), torch.arange(inputs).flip(0), torch.randperm(inputs)):
        for computed in (layer(at), in_some_order(layer, at, order)):
            assert ((box.lower <= computed) & (computed <= box.upper)).all()
    error = layer.rounding(Fraction(float(at.abs().max())), Fraction(1, 2**24)).error
    rows = (box.lower[0].tolist(), exact(layer, at[0]), box.upper[0].tolist(), layer(at)[0].tolist())
    for low, value, high, computed in zip(*rows, strict=True):
        assert low <= value <= high
        assert abs(value - Fraction(computed)) <= error
    assert (box.upper - box.lower).max() <= 2.002 * width * scale * layer.lipschitz + 1e-4 * max(scale, 1)  # but tight


@torch.no_grad()
def test_without_the_slack_some_order_escapes():
    """Large terms that cancel: what float32 computes is far from the exact sum, and from the order it is taken in."""
    torch.manual_seed(0)
    layer, x = Linear(64, 40).eval(), 1000 * torch.randn(1, 64)
    layer.weight[:, 32:], x[:, 32:] = -layer.weight[:, :32], x[:, :32] + 0.001
    bare = bare_box(layer.double(), Box(x.double(), x.double()))
    layer.float()
    sound = layer.forward_box(Box(x, x))
    escaped = 0
    for order in (torch.arange(64), torch.arange(64).flip(0), torch.randperm(64)):
        computed = in_some_order(layer, x, order).double()
        escaped += int(((computed < bare.lower - 1e-6) | (computed > bare.upper + 1e-6)).sum())
        assert ((sound.lower <= computed) & (computed <= sound.upper)).all()
        forms = Forms(torch.eye(40).double(), torch.zeros(40).double(), torch.zeros(40, dtype=torch.int64))
        assert (lowest(pull_back(layer, forms, Box(x, x)), Box(x, x)) <= computed[0]).all()
    assert escaped > 60  # or this test shows nothing


@settings(max_examples=10)
@given(SEEDS, st.integers(1, 4), st.integers(1, 3), st.integers(0, 2), st.booleans())
@torch.no_grad()
def test_convolutions_are_torchs_and_their_boxes_and_transposes_are_theirs(seed, kernel, stride, padding, double):
    torch.manual_seed(seed)
    padding, dtype = min(padding, kernel - 1), torch.float64 if double else torch.float32
    layer = Conv2d(2, 3, kernel, stride, padding).to(dtype).eval()
    lower = torch.randn(1, 2, 7, 6, dtype=dtype)
    upper = lower + torch.rand_like(lower)
    box = layer.forward_box(Box(lower, upper))
    x = inside(lower, upper, 9, torch.Generator().manual_seed(seed))
    computed = layer(x)
    assert tuple(computed.shape[1:]) == layer.output_shape((2, 7, 6))
    torch.testing.assert_close(computed, layer.train()(x))
    layer.eval()
    assert ((box.lower <= computed) & (computed <= box.upper)).all()
    y = torch.randn_like(computed)
    back = layer.transposed(y, layer.weight, (2, 7, 6))
    torch.testing.assert_close((back * x).sum(), (y * layer.product(x, layer.weight)).sum())
    torch.testing.assert_close(back, layer.train().transposed(y, layer.weight, (2, 7, 6)))
    steepest = (layer.product(torch.ones(1, 2, 7, 6, dtype=dtype), layer.weight.abs())).max()
    assert float(steepest) <= layer.lipschitz * (1 + 1e-5)


LAYERS = {
    "linear": (lambda: Linear(6, 5), (6,), (5,)),
    "convolution": (lambda: Conv2d(2, 3, 3, 2, 1), (2, 5, 4), (3, 3, 2)),
    "relu": (ReLU, (6,), (6,)),
    "normalize": (lambda: Normalize([0.3, 0.1], 0.2), (2, 3, 3), (2, 3, 3)),
}


@pytest.mark.parametrize("kind", LAYERS)
@settings(max_examples=8)
@given(seed=SEEDS, scale=st.sampled_from([1e-25, 1.0, 1e6]), parallel=st.booleans(), flush=st.booleans())
@torch.no_grad()
def test_forms_that_are_pulled_back_stay_below(kind, seed, scale, parallel, flush):
    """At points of the box, in exact arithmetic of numbers that are computed: the form of the inputs is never above."""
    make, shape, after = LAYERS[kind]
    torch.manual_seed(seed)
    layer = make().eval()
    lower = scale * torch.randn(1, *shape)
    box = Box(lower, lower + scale * torch.rand_like(lower) * torch.randint(2, lower.shape))
    weight = torch.randn(4, *after, dtype=torch.float64)
    forms = Forms(weight, torch.randn(4, dtype=torch.float64) * scale, torch.zeros(4, dtype=torch.int64), parallel)
    pulled = pull_back(layer, forms, box)
    x = inside(*box, 6, torch.Generator().manual_seed(seed))
    with flushing(flush):
        y = layer(x)
    for point, image in zip(x, y, strict=True):
        for k in range(4):
            below = dot(pulled.weight[k], point) + Fraction(pulled.offset[k].item())
            assert below <= dot(forms.weight[k], image) + Fraction(forms.offset[k].item())
            assert Fraction(lowest(pulled, box)[k].item()) <= below


def dot(weight, values):
    pairs = zip(weight.flatten().tolist(), values.flatten().tolist(), strict=True)
    return sum((Fraction(w) * Fraction(v) for w, v in pairs), Fraction(0))


def test_bounds_that_are_not_finite_prove_nothing():
    forms = Forms(torch.ones(1, 2).double(), torch.zeros(1).double(), torch.tensor([0]))
    for bad in (torch.nan, torch.inf, -torch.inf):
        box = Box(torch.tensor([[bad, -1.0]]), torch.tensor([[bad, 1.0]]))
        assert not lowest(pull_back(ReLU(), forms, box), box) > -torch.inf
        layer = Linear(2, 2).eval()
        assert not lowest(pull_back(layer, forms, box), box) > -torch.inf
    huge = torch.tensor([[3e38, 3e38]])
    assert layer.forward_box(Box(huge, huge)).lower.isnan().all()


def test_sizes_are_those_of_the_cited_works():
    """Of Wong and Kolter's small network 166,406 parameters, of Gowal's large one 17 million, for MNIST."""
    count = {}
    for name in SIZES:
        with torch.device("meta"):
            count[name] = sum(each.numel() for each in ReLUNet((1, 28, 28), 10, [0.1], 0.3, **sized(name)).parameters())
    assert count["small"] == 166_406
    assert 13e6 < count["large"] < 14e6
    assert sized("small", 0.25) == {"convolutions": [[4, 4, 2, 1], [8, 4, 2, 1]], "hidden": [25]}
    net = ReLUNet((1, 28, 28), 10, [0.1], 0.3, **sized("small"))
    assert net.terms() == 16 * 16 * 14**2 + 32 * 256 * 7**2 + 1568 * 100 + 100 * 10
    assert net.elements() == 256 * 49


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ({}, "at least one hidden layer"),
        ({"hidden": [0]}, "at least one neuron"),
        ({"hidden": [True]}, "whole numbers"),
        ({"hidden": "12"}, "whole numbers"),
        ({"convolutions": [[3, 3, 1]]}, r"\[channels, kernel, stride, padding\]"),
        ({"convolutions": 3}, r"\[channels, kernel, stride, padding\]"),
        ({"convolutions": [[3, 3, 0, 1]]}, "stride >= 1"),
        ({"convolutions": [[3, 3, 1, 3]]}, "padding between"),
        ({"convolutions": [[3, 9, 1, 0]]}, "does not fit"),
    ],
)
def test_what_cannot_be_built_is_refused(arguments, what):
    with pytest.raises((TypeError, ValueError), match=what):
        ReLUNet((1, 5, 5), 3, [0.5], 0.5, **arguments)


def test_sizes_that_do_not_exist_are_refused():
    with pytest.raises(ValueError, match="must be one of mlp, small"):
        sized("tiny")
    with pytest.raises(ValueError, match="width = 0"):
        sized("mlp", 0)


def test_weights_that_are_not_finite_are_refused():
    scores = Scores(3, 2)
    with torch.no_grad():
        scores.linear.weight[0, 0] = torch.nan
    with pytest.raises(ValueError, match="not finite"):
        scores.linear.check("scores")
    with pytest.raises(ValueError, match="too long to bound their rounding"):
        Stack(Linear(3, 2)).rounding(Fraction(1), Fraction(1, 4))
