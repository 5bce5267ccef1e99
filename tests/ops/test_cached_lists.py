"""Lists of weights that are kept have the bits of distances without them, inside their box and outside."""

import math

import pytest
import torch

from linfdist.ops.backends import native, sizes
from linfdist.ops.cached_lists import make_lists
from linfdist.ops.dist import dist, dist_box

DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
needs_native = pytest.mark.skipif(bool(native.missing()), reason="the native library is not built")


def problem(dtype, inputs=83, neurons=29, seed=0):
    generator = torch.Generator().manual_seed(seed)
    lower = torch.randn(inputs, dtype=dtype, generator=generator)
    upper = lower + torch.rand(inputs, dtype=dtype, generator=generator)
    w = 2 * torch.randn(neurons, inputs, dtype=dtype, generator=generator)
    w[3], w[5, 7] = (lower + upper) / 2, lower[7]  # a distance of 0 is possible
    kept = make_lists(lower, upper, w)
    assert kept is not None
    return lower, upper, w, kept, generator


@needs_native
@DTYPES
@pytest.mark.parametrize("rows", [0, 1, 2, 7, 17, 31, 70])
def test_the_same_bits(dtype, rows):
    lower, upper, w, kept, generator = problem(dtype)
    share = torch.rand(2, rows, 83, dtype=dtype, generator=generator).sort(0).values
    low, high = (lower + each * (upper - lower) for each in share)
    low, high = low.clamp(lower, upper), high.clamp(lower, upper)
    assert kept.inputs.numel() < 0.6 * w.numel()
    assert torch.equal(kept.dist(low), dist(low, w))
    for found, right in zip(kept.dist_box(low, high), dist_box(low, high, w), strict=True):
        assert torch.equal(found, right)
        assert not found.signbit().any()


@needs_native
@DTYPES
@pytest.mark.parametrize("value", [50.0, -50.0, math.nan, math.inf, -math.inf])
def test_outside_the_box_there_are_no_lists(dtype, value):
    lower, upper, w, kept, _ = problem(dtype)
    x = ((lower + upper) / 2).repeat(3, 1)
    x[1, 40] = value
    assert torch.equal(kept.dist(x).nan_to_num(nan=-1.0), dist(x, w).nan_to_num(nan=-1.0))
    for found, right in zip(kept.dist_box(x, x), dist_box(x, x, w), strict=True):
        assert torch.equal(found.nan_to_num(nan=-1.0), right.nan_to_num(nan=-1.0))


@needs_native
def test_one_digit_outside_the_box_counts():
    lower, _, w, kept, _ = problem(torch.float32)
    spoiled = kept._replace(weight=torch.full_like(kept.weight, 1e6))  # to see whether the lists are used
    x = lower[None].clone()
    assert not torch.equal(spoiled.dist(x), dist(x, w))
    x[0, 5] = torch.nextafter(x[0, 5], torch.tensor(-math.inf))
    assert torch.equal(spoiled.dist(x), dist(x, w))


@needs_native
def test_lists_that_would_read_elsewhere_are_refused():
    lower, upper, w, kept, _ = problem(torch.float32)
    first = torch.zeros_like(kept.start)
    for wrong in (
        {"inputs": kept.inputs + 83}, {"inputs": kept.inputs - 83}, {"inputs": kept.inputs[1:]},
        {"start": kept.start + 1}, {"start": first}, {"middle": kept.middle + 100_000}, {"weight": kept.weight[:5]},
        {"lower": lower[1:]},
        {"start": kept.start.int()}, {"weight": kept.weight.double()}, {"middle": kept.middle[:4]},
    ):  # fmt: skip
        with pytest.raises(RuntimeError, match="linfdist: "):
            kept._replace(**wrong).dist(lower[None])
    with pytest.raises(RuntimeError, match="linfdist: "):
        kept.dist(lower[None, 1:])
    assert make_lists(lower, upper + math.inf, w) is None


@pytest.mark.parametrize("backend", ["", "reference"])
@DTYPES
def test_sizes(dtype, backend, monkeypatch):
    monkeypatch.setenv("LINFDIST_BACKEND", backend)
    tiny = torch.finfo(dtype).smallest_normal
    assert sizes(torch.tensor([[-3.0, 0.0], [0.25, -0.0]], dtype=dtype)) == (0.25, 3.0)
    assert sizes(torch.randn(7, 5, dtype=dtype).T.clamp(2, 4))[0] == 2.0
    assert sizes(torch.tensor([0.0, tiny / 4, 1.0], dtype=dtype)) == (tiny / 4, 1.0)
    for nothing in (torch.zeros(9, dtype=dtype), torch.zeros(0, dtype=dtype)):
        least, largest = sizes(nothing)
        assert math.isnan(least)
        assert largest == 0
    for value in (math.nan, -math.nan, math.inf, -math.inf):
        assert not math.isfinite(sizes(torch.tensor([1.0, value, 2.0], dtype=dtype))[1])


def test_denormal_numbers_are_seen_where_the_processor_flushes_them():
    values = torch.tensor([1e-40, 1.0])
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor does not flush")
    try:
        assert sizes(values)[0] < 1e-30
    finally:
        torch.set_flush_denormal(False)
