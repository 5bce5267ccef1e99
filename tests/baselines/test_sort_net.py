"""SortNets: sorted sums are what they say, 1-Lipschitz as declared, enclosed by boxes, and certified never broken."""

import math
from fractions import Fraction
from functools import cache
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import linfdist as ld
from linfdist.attacks import attack
from linfdist.baselines import TRAINING_METHODS, Plan, SortLinear, SortNet, train
from linfdist.baselines.sorted_sum import geometric, sorted_sum
from linfdist.eps import parse_eps
from linfdist.models.base import rounding_error
from linfdist.nn import Box, DistLinear

from ..nn.flushing import flushing
from .nets import inside, pixels

SEEDS = st.integers(0, 10**6)
UNIT = Fraction(1, 2**24)


def net(seed, keep=0.7, terms=4):
    torch.manual_seed(seed)
    return SortNet((1, 3, 3), 4, [0.3], 0.31, [11, 7], keep, terms).eval()


def exact(layer, x):
    """The outputs of a layer for one input, in exact arithmetic."""
    rows = layer.weight.tolist()
    found = []
    for row, bias in zip(rows, layer.bias.tolist(), strict=True):
        apart = sorted((abs(Fraction(v) - Fraction(w)) for v, w in zip(x.tolist(), row, strict=True)), reverse=True)
        found.append(sum((Fraction(c) * s for c, s in zip(layer.shares, apart, strict=False)), Fraction(bias)))
    return found


@given(st.floats(0.05, 1.0), st.integers(1, 12))
@settings(max_examples=30)
def test_the_weights_are_those_of_the_paper_and_never_sum_to_more_than_one(keep, terms):
    shares = geometric(keep, terms) if keep < 1 else (1.0,)
    total = sum(map(Fraction, shares))
    assert 1 - Fraction(1, 2**20) < total <= 1
    assert all(torch.tensor(share).item() == share > 0 or share < 1e-37 for share in shares)  # exact in float32
    for now, then in pairwise(shares):
        assert then == pytest.approx((1 - keep) * now, rel=1e-6, abs=1e-37)


@given(SEEDS, st.sampled_from([1, 3, 31]), st.sampled_from([1, 4, 10]))
@settings(max_examples=8)
def test_sorted_sums_and_their_gradient_are_those_of_sorting(seed, inputs, terms):
    torch.manual_seed(seed)
    x, w = (torch.randn(rows, inputs, dtype=torch.float64, requires_grad=True) for rows in (5, 7))
    shares = geometric(0.6, terms)
    largest = (x[:, None] - w).abs().sort(2, descending=True).values[:, :, :terms]
    expected = (largest * x.new_tensor(shares)[: largest.shape[2]]).sum(2)
    y = sorted_sum(x, w, shares)
    torch.testing.assert_close(y, expected)
    push = torch.randn_like(y)
    for own, other in zip(*(torch.autograd.grad(each, (x, w), push) for each in (y, expected)), strict=True):
        torch.testing.assert_close(own, other)


def test_tiles_make_no_difference(monkeypatch):
    torch.manual_seed(0)
    x, w = torch.randn(9, 13).T.requires_grad_(), torch.randn(6, 9, requires_grad=True)  # a transpose has other strides

    def sums(x):
        y = sorted_sum(x, w, geometric(0.7, 5))
        return y, *torch.autograd.grad(y.square().sum(), (x, w))

    whole = sums(x)
    monkeypatch.setattr("linfdist.baselines.sorted_sum.TILE", 8)
    monkeypatch.setattr("linfdist.baselines.sorted_sum.AT_ONCE", 4)
    parts = sums(x)
    assert torch.equal(parts[0], whole[0])
    torch.testing.assert_close(parts[1:], whole[1:])
    nothing = sums(x.detach()[:0].requires_grad_())
    assert [tuple(each.shape) for each in nothing] == [(0, 6), (0, 9), (6, 9)]
    assert sorted_sum(x * torch.nan, w, (0.5, 0.25)).isnan().all()


@given(SEEDS, st.sampled_from([2, 29]), st.sampled_from([1e-20, 1.0, 1e6]), st.sampled_from([0.0, 1e-6, 0.5]))
@settings(max_examples=8)
@torch.no_grad()
def test_boxes_enclose_and_rounding_is_as_declared(seed, inputs, scale, width):
    torch.manual_seed(seed)
    layer = SortLinear(inputs, 5, 0.6, 4, bias=True).eval()
    layer.weight.mul_(scale)
    layer.bias.normal_().mul_(scale)
    x = scale * torch.randn(1, inputs)
    box = Box(x - width * scale, x + width * scale)
    at = inside(*box, 40, torch.Generator().manual_seed(seed))
    bounds = layer.forward_box(box)
    for wanted in (False, True):
        with flushing(wanted):
            y = layer(at)
            assert ((bounds.lower <= y) & (y <= bounds.upper)).all()
    error = layer.rounding(Fraction(float(at.abs().max())), UNIT).error
    rows = (bounds.lower[0].tolist(), exact(layer, at[0]), bounds.upper[0].tolist(), layer(at)[0].tolist())
    for low, value, high, computed in zip(*rows, strict=True):
        assert low <= value <= high
        assert abs(value - Fraction(computed)) <= error
    assert (bounds.upper - bounds.lower).max() <= 2.01 * width * scale + 1e-4 * scale + 1e-20  # but tight


@given(SEEDS, st.floats(0.3, 1.0))
@settings(max_examples=8)
@torch.no_grad()
def test_networks_are_as_lipschitz_as_they_declare(seed, keep):
    model = net(seed, keep)
    error, constant = rounding_error(model), Fraction(model.lipschitz) * Fraction(model.readout.lipschitz)
    assert constant <= Fraction(1 / 0.31) * (1 + Fraction(1, 2**20))
    generator = torch.Generator().manual_seed(seed)
    x, eps = pixels(model, 30, seed), 10 ** (-3 * torch.rand(30, 1, 1, 1, generator=generator))
    other = inside((x - eps).clamp(min=0), (x + eps).clamp(max=1), 30, generator)
    moved = (model(x) - model(other)).double().abs().amax(1)
    assert (moved <= float(constant) * (x - other).double().abs().flatten(1).amax(1) + 2 * error).all()


def test_when_everything_is_kept_it_is_the_distance():
    torch.manual_seed(0)
    layer, plain, x = SortLinear(9, 5, 1.0), DistLinear(9, 5), torch.randn(4, 9)
    plain.load_state_dict(layer.state_dict())
    with torch.no_grad():
        assert torch.equal(layer(x), plain(x))
        assert torch.equal(layer(x, 2.0), plain(x, 2.0))
        assert torch.equal(layer.dropped(x, math.inf, torch.Generator()), plain(x))


@torch.no_grad()
def test_the_mean_over_what_is_dropped_is_the_sorted_sum():
    torch.manual_seed(0)
    layer, x = SortLinear(20, 6, 0.5, 20, bias=True), torch.randn(1, 20)
    generator = torch.Generator().manual_seed(1)
    drawn = torch.cat([layer.dropped(x, math.inf, generator) for _ in range(1000)])
    off = (drawn.mean(0) - layer(x)[0]).abs() / (drawn.std(0) / math.sqrt(1000))
    assert off.max() < 5  # standard errors


@torch.no_grad()
def test_no_certificate_is_broken():
    model = net(3)
    x = pixels(model, 8)
    for method in ("margin", "box"):
        proof = ld.certify(model, x, None, method=method)
        assert torch.equal(proof.prediction, model(x).argmax(1))
        assert proof.radius.max() > 0.02
        radii = [parse_eps(radius) for radius in proof.radius.tolist()]
        for name in ("pgd", "strong"):
            assert not attack(name)(model, x, proof.prediction, radii).broken.any()
    assert attack("pgd")(model, x, proof.prediction, parse_eps("0.5")).broken.any()  # the attack is not blind
    assert (proof.radius >= ld.certify(model, x, None, method="margin").radius).all()


def test_what_cannot_be_trusted_is_refused(tmp_path):
    model = net(0)
    x = pixels(model, 2)
    with pytest.raises(ValueError, match="training mode"):
        ld.certify(net(0).train(), x, "0.1")
    with pytest.raises(TypeError, match="no linear bounds"):
        ld.certify(model, x, "0.1", method="crown")
    model.last.neurons.shares = (5.0, -2.0)
    with pytest.raises(ValueError, match="whose sum is at most 1"):
        ld.certify(model, x, "0.1")
    for key, value in {"keep": 0.0, "terms": 65, "hidden": [], "classes": 0}.items():
        with pytest.raises(ValueError, match=key):
            SortNet(**{"shape": (1, 3, 3), "classes": 4, "mean": [0.3], "std": 0.3, "hidden": [5], key: value})
    with pytest.raises(ValueError, match="have weight 0"):
        SortLinear(3, 3, 0.99, 60)
    broken = net(0)
    with torch.no_grad():
        broken.body.layers[4].weight[0, 0] = torch.inf
    with pytest.raises(ValueError, match="not finite"):
        ld.certify(broken, x, "0.1")


@cache
def digits(split):
    return ld.data.load("digits", split=split)


def test_training_certifies_and_files_hold_the_result(tmp_path):
    data, test, method = digits("train"), digits("test"), TRAINING_METHODS["sortnet"]()
    torch.manual_seed(0)
    model = method.network((1, 8, 8), 10, [0.3], 0.37, size="mlp", width=0.125)
    plan = Plan(eps=0.1, epochs=8, warm_up=1, ramp=5, lr=0.03, batch_size=32)
    train(model, data.images, data.labels, method, plan)
    x, y = model.from_bytes(test.images[:100]), test.labels[:100]
    proof = ld.certify(model, x, "0.05", y, radii=False)
    assert (proof.prediction == y).float().mean() > 0.7
    assert proof.certified.float().mean() > 0.4
    assert not attack("pgd")(model, x, y, parse_eps("0.05")).broken[proof.certified].any()
    ld.models.save(model, tmp_path / "sort.safetensors")
    loaded = ld.load(tmp_path / "sort.safetensors")
    assert isinstance(loaded, SortNet)
    assert torch.equal(loaded(x), model(x))
    with pytest.raises(TypeError, match="trains a SortNet, got a ReLUNet"):
        train(
            TRAINING_METHODS["natural"]().network((1, 8, 8), 10, [0.3], 0.37), data.images, data.labels, "sortnet", plan
        )


@pytest.mark.parametrize("keep", [1e-17, 1.66e-16, 2.4e-9, 1e-3, 0.3, 0.999])
def test_shares_never_sum_to_more_than_one(keep):
    """Rounded differences near 1 once made the shares of a small q sum to 1.5, and networks overflow unnoticed."""
    for terms in (1, 2, 10, 64):
        assert Fraction(99, 100) < sum(map(Fraction, geometric(keep, terms))) <= 1


def test_shares_and_means_that_were_tampered_with_are_refused():
    net = SortNet((1, 2, 2), 3, [0.0], 1.0, hidden=[5, 5]).eval()
    next(module for module in net.modules() if isinstance(module, SortLinear)).shares = (1.0, 1.0)
    with pytest.raises(ValueError, match="whose sum is at most 1"):
        ld.certify(net, torch.rand(2, 1, 2, 2), "0.01")
    net = SortNet((1, 2, 2), 3, [0.0], 1.0, hidden=[5, 5]).eval()
    shift = next(module for module in net.modules() if isinstance(module, ld.nn.MeanShift))
    shift.running_mean = torch.zeros(2, 5)  # along a batch of two
    with pytest.raises(ValueError, match=r"running_mean has shape \(2, 5\), but had shape \(5,\) when"):
        ld.certify(net, torch.rand(2, 1, 2, 2), "0.01", method="margin")
