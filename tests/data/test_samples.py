"""Which samples of a set are taken for a look at it."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from linfdist.data.base import spread_out


@given(count=st.integers(0, 400), total=st.integers(0, 2000))
def test_one_of_each_stretch(count, total):
    found = spread_out(count, total)
    assert len(found) == min(count, total)
    for k, sample in enumerate(found.tolist()):
        assert k * total // len(found) <= sample < (k + 1) * total // len(found)


@pytest.mark.parametrize("count", [1000, 2000, 5000])
@pytest.mark.parametrize("total", [50_000, 60_000])
@pytest.mark.parametrize("period", [2, 3, 4, 5, 10, 12])
def test_no_period_is_preferred(count, total, period):
    """The training set of MNIST alternates: every sixtieth image of it is one of the harder half."""
    counts = torch.bincount(spread_out(count, total) % period, minlength=period)
    assert (counts - count / period).abs().max() <= 0.1 * count / period + 2
