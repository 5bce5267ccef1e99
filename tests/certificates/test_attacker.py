"""Certificates as an attacker sees them: images within the claimed balls, to the last bit of the claim."""

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import linfdist as ld
from linfdist.models import DistNet, DistNetMLP

from .nets import as_far_as, attacks, corners, count_flips, head_net, images, random_net, trained_net, two_classes


@pytest.mark.parametrize("method", ["margin", "box"])
@pytest.mark.parametrize("kind", ["plain", "head", "conv"])
def test_no_image_within_the_radius_flips(kind, method):
    net = trained_net()[0] if kind == "plain" else head_net(2, conv=kind == "conv")
    x = images(48, seed=11)
    radius = ld.certify(net, x, None, method=method).radius
    assert (radius > 0.005).float().mean() > 0.5
    assert count_flips(net, x, corners(x, radius)) == 0
    assert count_flips(net, x, attacks(net, x, radius)) == 0
    assert count_flips(net, x, attacks(net, x, 3 * radius)) > 5  # the attack is worth its name


@settings(max_examples=25)
@given(
    seed=st.integers(0, 10**6), width=st.sampled_from([1, 5, 12]), depth=st.integers(1, 5),
    size=st.sampled_from([1e-30, 1e-3, 1.0, 30.0, 1e5, 1e30]), shift=st.booleans(),
    method=st.sampled_from(["margin", "box"]),
)  # fmt: skip
def test_plain_nets_of_any_size_of_weights(seed, width, depth, size, shift, method):
    net, x = random_net(seed, width, depth, size, shift), images(24, seed)
    assert count_flips(net, x, attacks(net, x, ld.certify(net, x, None, method=method).radius, tries=4)) == 0


@settings(max_examples=15)
@given(
    seed=st.integers(0, 10**6), gain=st.sampled_from([1e-30, 1.0, 20.0, 1e6, 1e30]), conv=st.booleans(),
    method=st.sampled_from(["margin", "box"]), outputs=st.sampled_from([1e-30, 1.0, 1e30]),
)  # fmt: skip
def test_heads_of_any_size_of_weights(seed, gain, conv, method, outputs):
    net, x = head_net(seed, gain, conv), images(24, seed)
    with torch.no_grad():
        net.head.output.weight.mul_(outputs)
        net.head.output.bias.mul_(outputs)
    assert count_flips(net, x, attacks(net, x, ld.certify(net, x, None, method=method).radius, tries=4)) == 0


@pytest.mark.parametrize("method", ["margin", "box"])
def test_rounding_attack_at_the_claimed_radius(method):
    """One pixel between two far classes: logits are so coarse that steps well within margin/2L already tie or flip."""
    x = torch.linspace(0, 1, 4001)[:, None, None, None]
    ends = [torch.ones_like(x), -torch.ones_like(x)]
    naive = 0
    for size in (30.0, 300.0, 3000.0):
        net = two_classes(size + 1, -size)
        radius = ld.certify(net, x, None, method=method).radius
        assert (radius > 0).any()
        assert count_flips(net, x, (as_far_as(x, end, radius) for end in ends)) == 0
        top = net(x).double().topk(2, dim=1).values
        naive += count_flips(net, x, (as_far_as(x, end, (top[:, 0] - top[:, 1]) / 2) for end in ends))
    assert naive > 0  # without the slack


def last_before_the_flip(net, x):
    """The largest float step from one pixel up to which nothing flips or ties, by bisection over the floats."""
    good, bad = 0.0, 1.0
    z = lambda step: net((x.double() + step).clamp(0, 1).float())[0]  # noqa: E731
    best = z(0.0).argmax()
    while math.nextafter(good, 1) < bad and bad - good > 2**-40:
        middle = (good + bad) / 2
        top = z(middle)
        good, bad = (middle, bad) if (top.argmax() == best and top[0] != top[1]) else (good, middle)
    return good


@pytest.mark.parametrize("size", [1.0, 100.0, 1e4])
def test_the_box_is_exact_for_one_pixel_and_one_ulp_decides(size):
    """The flip lies between two neighbouring floats: an ulp before the first is certified, the second is not."""
    net, x = two_classes(-size, size + 1), torch.full((1, 1, 1, 1), 0.2)
    step = last_before_the_flip(net, x)
    last = (x.double() + step).float()
    room = Fraction(last.item()) - Fraction(x.item())  # exact distance of the last pixel of this class
    following = Fraction(torch.nextafter(last, torch.ones(())).item()) - Fraction(x.item())
    assert ld.certify(net, x, room - Fraction(1, 2**23), radii=False).certified.item()
    assert not ld.certify(net, x, following, radii=False).certified.item()
    assert Fraction(ld.certify(net, x, None).radius.item()) < following


def test_a_margin_of_exactly_2_eps_is_not_certified():
    """x = 1/4 between 0 and 1: it ties at 1/2, a quarter away. One pixel less is certified by the box, rightly."""
    net, x = two_classes(0.0, 1.0), torch.full((1, 1, 1, 1), 0.25)
    below = math.nextafter(0.25, 0)
    for method in ("margin", "box"):
        assert not ld.certify(net, x, "1/4", method=method).certified.item()
        assert not ld.certify(net, x, Fraction(1, 4) + Fraction(1, 10**30), method=method).certified.item()
        assert 0.2499 < ld.certify(net, x, None, method=method).radius.item() < 0.25
    assert not ld.certify(net, x, below, method="margin").certified.item()  # within its slack
    assert not ld.certify(net, x, below).certified.item()  # as a float32 it is 1/4
    assert ld.certify(net, x, 0.25 - 2**-25).certified.item()
    assert net(torch.full((1, 1, 1, 1), 0.5 - 2**-25)).argmax() == 0


def test_ties_certify_nothing():
    net = two_classes(0.0, 1.0)
    x = torch.full((1, 1, 1, 1), 0.5)
    same = random_net(0)
    with torch.no_grad():
        same.last.weight[1:] = same.last.weight[0]
        same.last.bias.zero_()
    for tied, at in ((net, x), (same, images(5))):
        for method in ("margin", "box"):
            proof = ld.certify(tied, at, 0, method=method)
            assert not proof.certified.any()
            assert not proof.radius.any()


def test_a_tied_head_certifies_nothing():
    net = head_net(0)
    with torch.no_grad():
        net.head.output.weight[1:] = net.head.output.weight[0]
        net.head.output.bias.zero_()
    for method in ("margin", "box"):
        proof = ld.certify(net, images(9), 0, method=method)
        assert not proof.certified.any()
        assert not proof.radius.any()


@pytest.mark.parametrize("eps", ["8/255", "1/3", "0.1"])
def test_fractions_that_no_float_is(eps):
    """A flip just within the fraction, beyond the nearest float below it, and one just outside."""
    exact = Fraction(eps)
    for start in (0.0, 0.125, 0.3):
        x = torch.full((1, 1, 1, 1), start)
        inside = torch.tensor(float(Fraction(x.item()) + exact))  # the last pixel of the ball
        while Fraction(inside.item()) - Fraction(x.item()) > exact:
            inside = torch.nextafter(inside, torch.tensor(0.0))
        outside = torch.nextafter(inside, torch.tensor(1.0))
        for target, allowed in ((inside, False), (outside, True)):
            # |x + 2^-30| and |x − (2t + 2^-30)| in float64: equal at the target, so the class changes or ties there
            net = two_classes(-(2.0**-30), 2 * target.item() + 2.0**-30)
            z = net(target.view(1, 1, 1, 1))[0]
            assert z[1] >= z[0]
            certified = ld.certify(net, x, eps, radii=False).certified.item()
            assert not certified or allowed


@pytest.mark.parametrize("method", ["margin", "box"])
def test_overflow_certifies_nothing(method):
    """One logit is −inf: an infinite margin, which is worth nothing."""
    net = two_classes(0.0, -3e38)
    with torch.no_grad():
        net.last.bias.copy_(torch.tensor([0.0, 3e38]))
    x = torch.full((1, 1, 1, 1), 0.25)
    assert net(x)[0, 1] == -math.inf
    for eps in (0, "0.1"):
        proof = ld.certify(net, x, eps, method=method)
        assert proof.radius.item() == 0
        assert not proof.certified.item()


def test_a_head_that_overflows_certifies_nothing():
    """Sums of ±1e38 are fine in float64, but not as executed: inf − inf is NaN."""
    net = head_net(0)
    with torch.no_grad():
        net.head.output.weight.copy_(torch.tensor([1.0, -1.0] * 6) * 3e38)
        net.head.output.bias.copy_(torch.tensor([3e38, 0.0, 0.0, 0.0]))
    for method in ("margin", "box"):
        proof = ld.certify(net, images(20), 0, method=method)
        assert not proof.certified.any()


def test_the_head_is_certified_for_any_order_of_summation():
    """Logits that nearly cancel: classes that float64, other batches or orders see differently are not certified."""
    torch.manual_seed(0)
    net = DistNetMLP((1, 3, 3), 3, 257, 1, [0.3], 0.31, head=311).train()
    for _ in range(60):
        net(images(64, seed=9))
    net.eval()
    with torch.no_grad():
        net.head.hidden.weight.mul_(3)
        apart = torch.tensor([[1e-6], [3e-3]])  # what rounding may turn round, and what it may not
        net.head.output.weight[1:] = net.head.output.weight[0] + apart * torch.randn(2, 311)
    x = images(1024, seed=1)
    proof = ld.certify(net, x, 0, radii=False)
    assert 0.05 < proof.certified.float().mean() < 0.95
    order1, order2 = torch.randperm(257), torch.randperm(311)
    w1, w2 = net.head.hidden.scaled_weight(), net.head.output.scaled_weight()
    features = net.features(x)
    hidden = (features[:, order1] @ w1[:, order1].T + net.head.hidden.bias).tanh()
    others = [
        (hidden[:, order2] @ w2[:, order2].T + net.head.output.bias).argmax(1),
        torch.cat([net(part).argmax(1) for part in x.split(17)]),
        net.double()(x.double()).argmax(1),
    ]
    assert any((other != proof.prediction).any() for other in others)
    for other in others:
        assert torch.equal(other[proof.certified], proof.prediction[proof.certified])


@pytest.mark.parametrize("method", ["margin", "box"])
def test_the_std_in_use_counts(method):
    """Halving std doubles the slope: radii follow the buffer, not the configuration."""
    net, x = trained_net()[0], images(40, seed=3)
    before = ld.certify(net, x, None, method=method)
    normalize = net.body.layers[0]
    with torch.no_grad():
        normalize.std.mul_(0.25)
    after = ld.certify(net, x, None, method=method)
    assert (after.radius > 0).any()
    assert count_flips(net, x, attacks(net, x, after.radius)) == 0
    gap = lambda: net(x).double().topk(2, dim=1).values.diff(dim=1).abs()[:, 0]  # noqa: E731
    assert (after.radius <= before.radius.max()).all()
    if method == "margin":
        torch.testing.assert_close(after.radius, gap() * normalize.std / 2, rtol=1e-3, atol=1e-4)


def test_two_normalisations_multiply():
    """The rounding of the first is stretched by the second, and so is every ball."""
    net, x = random_net(3, width=12, depth=2), images(60, seed=3)
    net.body.layers.insert(1, ld.nn.Normalize([0.1], 1e-4))
    net.eval()
    radius = ld.certify(net, x, None, method="margin").radius
    assert count_flips(net, x, attacks(net, x, radius)) == 0
    assert net.lipschitz > 1e4


def test_flushed_denormals():
    """Tiny weights and steps; whoever flushes denormals to zero gets certificates that hold for that."""
    if not torch.set_flush_denormal(True):
        pytest.skip("this CPU cannot")
    try:
        for seed in range(4):
            net, x = random_net(seed, size=1e-38), images(24, seed) * 1e-37
            for method in ("margin", "box"):
                assert count_flips(net, x, attacks(net, x, ld.certify(net, x, None, method=method).radius)) == 0
    finally:
        torch.set_flush_denormal(False)


def test_a_cropped_network():
    net = DistNet((1, 5, 5), 3, 9, 2, [0.3], 0.31, crop=3).eval()
    x = torch.rand(20, 1, 5, 5)
    proof = ld.certify(net, x, None)
    assert torch.equal(proof.radius, ld.certify(net, x[:, :, 1:4, 1:4], None).radius)
    assert (proof.radius > 0).any()
