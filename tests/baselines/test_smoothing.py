"""Randomised smoothing: its confidence bounds are exact, and its claims are statistical, and say so."""

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import linfdist as ld
from linfdist.baselines import TRAINING_METHODS, Plan, StatisticalClaim, smoothed, train
from linfdist.baselines.smoothing import ABSTAINED, FINE, at_most, lower_bound, radius_of

from .nets import mlp, pixels


def tail(successes, trials, p):
    """The probability of so many successes or more, exactly."""
    p = Fraction(p)
    return sum(math.comb(trials, j) * p**j * (1 - p) ** (trials - j) for j in range(successes, trials + 1))


@given(st.integers(1, 60), st.floats(0, 1), st.sampled_from([0.5, 0.05, 0.001, 1e-9]))
@settings(max_examples=30, deadline=None)
def test_the_bound_is_the_largest_that_exact_sums_allow(trials, share, alpha):
    successes = round(share * trials)
    found = lower_bound(successes, trials, alpha)
    if not successes:
        assert found == 0  # which says nothing, and so is never wrong
        return
    assert tail(successes, trials, found) <= Fraction(alpha)
    after = found + 2 * FINE  # the next one may be as good in exact arithmetic
    assert after > successes / trials or tail(successes, trials, after) > Fraction(alpha)


@given(st.integers(1, 40), st.floats(0, 1), st.integers(0, 2**20))
@settings(max_examples=30, deadline=None)
def test_a_tail_that_is_passed_is_small_enough(trials, share, step):
    successes, p = round(share * trials), step * FINE
    exact = tail(successes, trials, p)
    for alpha in (float(exact) * 0.999999, float(exact), float(exact) * 1.000001):
        if 0 < alpha < 1:
            assert at_most(successes, trials, p, alpha) <= (exact <= Fraction(alpha))
            assert at_most(successes, trials, p, alpha) or exact > Fraction(alpha) * Fraction(0.99999999)


def test_bounds_of_many_trials():
    for count, alpha in ((1000, 0.001), (100_000, 0.001)):
        found = lower_bound(count, count, alpha)  # alpha^(1/n), as all trials succeeded
        assert alpha ** (1 / count) - 2 * FINE < found <= alpha ** (1 / count)
    assert 0.0 < lower_bound(3, 10_000, 0.001) < 3e-4
    assert lower_bound(0, 100, 0.01) == 0.0
    assert lower_bound(520, 1000, 0.001) < 0.5 < lower_bound(560, 1000, 0.001)
    for values in ((5, 4, 0.1), (0, 0, 0.1), (1, 2, 0.0), (1, 2, 1.0)):
        with pytest.raises(ValueError, match=r"trial|alpha"):
            lower_bound(*values)


def test_radii_are_those_of_the_normal_distribution_rounded_down():
    assert radius_of(0.5, 1.0) == radius_of(0.2, 1.0) == 0.0
    for p in (0.6, 0.9, 0.999):
        radius = radius_of(p, 0.25)
        assert 0.5 * (1 + math.erf(radius / 0.25 / math.sqrt(2))) == pytest.approx(p, abs=1e-8)
        assert 0.5 * (1 + math.erf(radius / 0.25 / math.sqrt(2))) < p


def test_of_a_linear_network_the_claim_is_known():
    """The smoothed classifier of a half space is that half space: in ℓ∞, its radius is the margin over the ℓ1 norm."""
    net = mlp(0, hidden=(2,))
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.zero_()
        first, last = net.body.layers[2], net.scores.linear
        first.weight[0], first.bias[0] = 1.0, 100.0  # never bends
        last.weight[0, 0], last.bias[1:], last.bias[0] = 1.0, torch.tensor([100.0, 0.0, 0.0]), 0.0
    x = torch.full((1, 1, 3, 3), 0.5)
    true = 0.5 - 0.3  # the mean of the pixels that decides is that of `Normalize`
    claim = smoothed(net, x, "0.1", 0.3, samples=4000)
    assert claim.prediction.item() == 0
    assert 0.75 * true < claim.radius.item() <= true
    assert claim.claimed.item()
    assert not smoothed(net, x, "0.1", 0.3, y=torch.tensor([1]), samples=4000).claimed.item()
    assert not smoothed(net, x, "0.21", 0.3, samples=4000).claimed.item()
    nearly = torch.full((1, 1, 3, 3), 0.3005)  # both classes are as likely
    assert smoothed(net, nearly, "0.1", 0.3).prediction.item() == ABSTAINED


def test_a_claim_is_no_certificate_and_follows_from_the_seed():
    net, x = mlp(1), pixels(mlp(1), 4)
    one, same, other = (smoothed(net, x, "0.01", 0.1, samples=200, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(one.radius, same.radius)
    assert not torch.equal(one.radius, other.radius)
    assert isinstance(one, StatisticalClaim)
    assert not isinstance(one, ld.certificates.Certificate)
    assert not hasattr(one, "certified")
    assert "wrong with probability up to 0.001" in one.summary()
    assert TRAINING_METHODS["smoothing"].certified_by == ()
    with pytest.raises(ValueError, match="training mode"):
        smoothed(mlp(1).train(), x, "0.01", 0.1)
    with torch.no_grad():
        net.scores.linear.bias[0] = torch.nan
    assert smoothed(net, x[:1], "0.01", 0.1, samples=50).abstained.all()  # NaN votes for nothing
    for values, what in (({"sigma": 0.0}, "sigma = 0"), ({"sigma": 0.1, "samples": 0}, "samples = 0")):
        with pytest.raises(ValueError, match=what):
            smoothed(net, x, "0.01", **values)


def test_training_with_noise_and_the_price_of_the_dimension():
    """What is claimed at a small radius is out of reach at a larger one: all samples agreeing is not enough."""
    data, test = (ld.data.load("digits", split=split) for split in ("train", "test"))
    method = TRAINING_METHODS["smoothing"](sigma=0.25)
    torch.manual_seed(0)
    net = method.network((1, 8, 8), 10, [0.3], 0.37, size="mlp", width=0.125)
    train(net, data.images, data.labels, method, Plan(eps=0, epochs=6, warm_up=0, ramp=0, lr=0.01, batch_size=64))
    x, y = net.from_bytes(test.images[:20]), test.labels[:20]
    claim = smoothed(net, x, "0.02", 0.25, y, samples=500)
    assert claim.claimed.float().mean() > 0.5
    most = radius_of(lower_bound(500, 500, 0.001), 0.25) / 8  # √64 pixels
    assert most < 0.1
    assert (claim.radius <= most).all()
    assert not smoothed(net, x, "0.1", 0.25, y, samples=500).claimed.any()
