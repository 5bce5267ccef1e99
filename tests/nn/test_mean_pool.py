"""MeanPool: its layout, and boxes that hold whatever the order of the sums."""

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import avg_pool2d

from linfdist.nn import Box, MeanPool

from .flushing import flushing
from .samples import assert_encloses, points_of, random_box


def blocks(x, k):
    """The k·k pixels of every block: (B, F, k²), blocks in the layer's order."""
    found = x.unfold(2, k, k).unfold(3, k, k)  # (B, C, h, w, k, k)
    return found.flatten(4).flatten(1, 3)


def in_order(x, k, order, finish):
    """The means, each summed one number after the other in this order."""
    numbers = blocks(x, k)
    total = torch.zeros_like(numbers[..., 0])
    for place in order:
        total = total + numbers[..., place]
    return finish(total, k * k)


def by_halves(x, k, order, finish):
    """The means, summed pair by pair as in a tree."""
    numbers = [blocks(x, k)[..., place] for place in order]
    while len(numbers) > 1:
        pairs = [a + b for a, b in zip(numbers[::2], numbers[1::2], strict=False)]
        numbers = pairs + numbers[len(numbers) - len(numbers) % 2 :]
    return finish(numbers[0], k * k)


FINISH = [lambda total, n: total / n, lambda total, n: total * torch.tensor(1 / n, dtype=total.dtype)]


def all_ways(x, k):
    """What machines may compute as the means of the k×k blocks."""
    orders = [range(k * k), range(k * k - 1, -1, -1), torch.randperm(k * k).tolist()]
    for order in orders:
        for finish in FINISH:
            yield in_order(x, k, order, finish)
            yield by_halves(x, k, order, finish)
    yield avg_pool2d(x, k).flatten(1)


@pytest.mark.parametrize("sizes", [(1,), (2,), (1, 2, 4), (3, 1), [5, 2]])
def test_the_layout(sizes):
    x = torch.rand(3, 2, 9, 7)
    layer = MeanPool(sizes)
    expected = torch.cat([avg_pool2d(x, k).flatten(1) for k in sizes], 1)
    assert torch.equal(layer(x), expected)
    assert layer.output_shape((2, 9, 7)) == expected.shape[1:]
    assert not layer.state_dict()


def test_values_by_hand():
    x = torch.arange(15.0).view(1, 1, 3, 5)
    assert MeanPool([2, 1])(x).tolist() == [[3.0, 5.0, *range(15)]]


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10**6), k=st.sampled_from([1, 2, 3, 7]), scale=st.sampled_from([1e-42, 1e-37, 1e-20, 1.0, 1e6]),
    double=st.booleans(), flush=st.tuples(st.booleans(), st.booleans()),
)  # fmt: skip
def test_boxes_enclose_every_order_of_summation(seed, k, scale, double, flush):
    """Whether denormal numbers are flushed may differ between whoever bounds and whoever computes."""
    torch.manual_seed(seed)
    box = random_box(2, 2, 8, 9, dtype=torch.float64 if double else torch.float32, radius=0.5)
    box = Box(*((side - 0.7) * scale for side in box))
    with flushing(flush[0]):
        bounds = MeanPool([k]).forward_box(box)
    with flushing(flush[1]):
        for x in points_of(box, 3):
            for computed in all_ways(x, k):
                assert_encloses(bounds, computed)


def test_boxes_enclose_the_exact_means():
    x = torch.randn(1, 1, 7, 7)
    low, high = (side[0].tolist() for side in MeanPool([7]).forward_box(Box(x, x)))
    exact = sum(map(Fraction, x.flatten().tolist())) / 49
    assert Fraction(low[0]) <= exact <= Fraction(high[0])
    assert high[0] - low[0] < 1e-5  # and are not much wider


def test_pixels_themselves_need_no_slack():
    box = random_box(2, 3, 4, 4)
    bounds = MeanPool([1]).forward_box(box)
    assert torch.equal(bounds.lower, box.lower.flatten(1))
    assert torch.equal(bounds.upper, box.upper.flatten(1))


def test_without_the_slack_some_order_escapes():
    """So the slack is not idle."""
    x = torch.rand(64, 1, 16, 16)
    bounds = avg_pool2d(x, 16).flatten(1)
    assert any((computed != bounds).any() for computed in all_ways(x, 16))


def test_sums_that_may_overflow_have_no_bounds():
    x = torch.full((1, 1, 4, 4), 3e38)
    assert MeanPool([4])(x).isinf().all()
    assert_encloses(MeanPool([4]).forward_box(Box(x, x)), MeanPool([4])(x))


@pytest.mark.parametrize("k", [1, 2, 5])
def test_the_declared_rounding_holds(k):
    x = 2 * torch.rand(20, 1, 5, 5) - 1
    declared = MeanPool([k]).rounding(Fraction(1), Fraction(1, 2**24))
    exact = avg_pool2d(x.double(), k).flatten(1)
    for computed in all_ways(x, k):
        assert (computed.double() - exact).abs().max() <= float(declared.error) + 1e-15
    assert declared.error == (0 if k == 1 else (k * k + 2) * Fraction(1, 2**24))
    assert declared.peak == k * k


def test_it_moves_by_no_more_than_the_pixels(dtype):
    layer, x = MeanPool([1, 2, 3]), torch.rand(9, 2, 6, 6, dtype=dtype)
    for step in (torch.rand_like(x) - 0.5, (torch.rand_like(x) - 0.5).sign(), torch.ones_like(x)):
        moved = (layer(x + 0.1 * step) - layer(x)).abs().amax(1)
        assert (moved <= layer.lipschitz * (0.1 * step).abs().amax((1, 2, 3)) + 1e-6).all()


def test_gradients():
    x = torch.rand(2, 1, 5, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(MeanPool([1, 2, 3]), x)


@pytest.mark.parametrize(
    ("sizes", "error", "message"),
    [
        ((), ValueError, "at least one size"),
        ((0,), ValueError, "between 1 and 1024 pixels, got 0"),
        ((2, -1), ValueError, "between 1 and 1024 pixels, got -1"),
        ((5000,), ValueError, "between 1 and 1024 pixels, got 5000"),
        ((1.5,), TypeError, r"whole numbers such as \[1, 2, 4\], got \(1.5,\)"),
        ((True,), TypeError, "whole numbers"),
        ("12", TypeError, "whole numbers"),
        (2, TypeError, "whole numbers"),
        (None, TypeError, "whole numbers"),
        ((math.nan,), TypeError, "whole numbers"),
    ],
)
def test_impossible_sizes(sizes, error, message):
    with pytest.raises(error, match=message):
        MeanPool(sizes)


def test_images_must_have_such_blocks():
    with pytest.raises(ValueError, match="an image of 5x3 has no block of 4x4 pixels"):
        MeanPool([2, 4])(torch.rand(1, 1, 5, 3))
    with pytest.raises(ValueError, match=r"takes images \(B, C, H, W\), got \(2, 25\)"):
        MeanPool([2])(torch.rand(2, 25))
    with pytest.raises(ValueError, match=r"takes images \(C, H, W\), got \(25,\)"):
        MeanPool([2]).output_shape((25,))
