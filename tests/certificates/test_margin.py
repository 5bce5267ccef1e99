"""The margin certificate, as an attacker sees it."""

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from linfdist.certificates.proofs import LogitMargin, _certify
from linfdist.eps import parse_eps
from linfdist.models import DistNet

from .nets import images, margin, random_net, trained_net


@pytest.fixture(scope="module")
def trained():
    return trained_net()


def perturbed(net, x, radius, kind):
    """Images within `radius` of x, each exactly as far as floats allow: never further, in exact arithmetic."""
    if kind == "gradient":
        x = x.clone().requires_grad_()
        top = net(x, 20.0).topk(2, dim=1).values
        (top[:, 1] - top[:, 0]).sum().backward()
        sign = x.grad.sign()
        x = x.detach()
    else:
        sign = torch.randint(0, 2, x.shape) * 2.0 - 1
    wanted = x.double() + sign * radius[:, None, None, None]
    moved = wanted.clamp(0, 1).float()
    too_far = (moved.double() - x.double()).abs() > radius[:, None, None, None]
    return torch.where(too_far, torch.nextafter(moved, x), moved).clamp(0, 1)


def flips(net, x, radius, tries=30):
    prediction, count = net(x).argmax(1), 0
    for k in range(tries):
        near = perturbed(net, x, radius, "gradient" if k == 0 else "corner")
        assert ((near.double() - x.double()).abs().amax((1, 2, 3)) <= radius).all()
        count += int((net(near).argmax(1) != prediction).sum())
    return count


def test_no_image_within_the_radius_flips(trained):
    net, x = trained
    proof = margin(net, x)
    assert torch.equal(proof.prediction, net(x).argmax(1))
    assert (proof.radius > 0.01).float().mean() > 0.5
    assert flips(net, x, proof.radius) == 0
    assert flips(net, x, proof.radius * 3) > 0  # the attack is worth its name


@given(
    seed=st.integers(0, 10**6), width=st.sampled_from([1, 5, 12]), depth=st.integers(1, 6),
    size=st.sampled_from([1e-3, 1.0, 30.0, 1e5]), shift=st.booleans(),
)  # fmt: skip
def test_certified_is_never_broken(seed, width, depth, size, shift):
    net, x = random_net(seed, width, depth, size, shift), images(32, seed)
    assert flips(net, x, margin(net, x).radius, tries=6) == 0


def test_the_slack_is_needed_and_enough():
    """One pixel between two classes, where a step of exactly the radius reaches the other; logits are coarse."""
    broken = 0
    x = torch.linspace(0, 1, 4001)[:, None, None, None]
    for size in (30.0, 300.0, 3000.0):
        net = two_classes(size + 1, -size)
        proof = margin(net, x)
        assert (proof.radius > 0).any()
        assert flips(net, x, proof.radius, tries=12) == 0
        top = net(x).double().topk(2, dim=1).values
        broken += flips(net, x, (top[:, 0] - top[:, 1]) / (2 * net.lipschitz), tries=12)
    assert broken > 0  # without the slack


def two_classes(first, second):
    """Logits −|x − first| and −|x − second| of one pixel."""
    net = DistNet((1, 1, 1), 2, 1, 1, [0.0], 1.0).eval()
    with torch.no_grad():
        net.last.weight.copy_(torch.tensor([[first], [second]]))
    return net


def test_a_margin_of_exactly_2_eps_is_not_certified():
    """x = 1/4 between 0 and 1: it ties at 1/2, a quarter away."""
    net, x = two_classes(0.0, 1.0), torch.full((1, 1, 1, 1), 0.25)
    proof = margin(net, x)
    assert 0.2499 < float(proof.radius) < 0.25
    certified = [bool(margin(net, x, eps).certified) for eps in ("1/4", 0.25 - 1e-9, "0.2499", 1)]
    assert certified == [False, False, True, False]


def test_fractions_are_exact():
    """8/255 lies between two floats: a radius of the lower one does not do."""
    proof = LogitMargin(two_classes(0.0, 1.0), torch.full((3, 1, 1, 1), 0.25), lipschitz=1.0, error=0.0)
    eps = parse_eps("8/255")
    nearest = float(eps)
    towards = 1 if Fraction(nearest) < eps else 0
    below, above = sorted((nearest, math.nextafter(nearest, towards)))
    assert Fraction(below) < eps < Fraction(above)
    proof.radius = torch.tensor([below, above, math.nextafter(above, 1)], dtype=torch.float64)
    radius, certified = _certify([proof], eps, radii=False)[1:3]
    assert certified.tolist() == [False, True, True]
    assert radius.dtype == torch.float64


def test_ties_have_radius_zero_and_the_first_class():
    proof = margin(two_classes(0.0, 1.0), torch.full((1, 1, 1, 1), 0.5), 0)
    assert proof.radius.item() == 0
    assert proof.prediction.item() == 0
    assert not proof.certified.any()


def test_what_is_refused(trained):
    net, x = trained
    for value in (math.nan, math.inf, -1e-7, 1 + 1e-6):
        bad = x[:3].clone()
        bad[1, 0, 2, 2] = value
        with pytest.raises(ValueError, match=r"\[0, 1\]"):
            margin(net, bad)
    with pytest.raises(TypeError, match="floating-point pixels"):
        margin(net, torch.zeros(1, 1, 3, 3, dtype=torch.uint8))


def test_training_mode_is_refused_wherever_it_hides():
    net = random_net(0)
    for module in (net, net.body, list(net.body)[-1]):
        net.eval()
        module.train()
        with pytest.raises(ValueError, match="training mode"):
            margin(net, images(2))
    assert not margin(net.eval(), images(0)).radius.numel()


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_weights_that_are_not_finite_are_refused(value):
    net = random_net(0)
    net.last.weight.data[0, 0] = value
    with pytest.raises(ValueError, match="not finite"):
        margin(net, images(2))


def test_overflow_certifies_nothing():
    """One logit is −inf: an infinite margin, which is worth nothing."""
    net = two_classes(0.0, -3e38)
    with torch.no_grad():
        net.last.bias.copy_(torch.tensor([0.0, 3e38]))
    x = torch.full((1, 1, 1, 1), 0.25)
    assert net(x)[0, 1] == -math.inf
    assert margin(net, x).radius.item() == 0
    with torch.no_grad():
        net.last.bias.zero_()  # finite here, but large enough that nothing is known elsewhere
    assert net(x).isfinite().all()
    assert margin(net, x).radius.item() == 0


def test_one_class_has_no_margin():
    net = DistNet((1, 1, 1), 1, 1, 1, [0.0], 1.0).eval()
    with pytest.raises(ValueError, match="one class"):
        margin(net, torch.zeros(1, 1, 1, 1))


def test_a_subclass_is_refused():
    class Steep(DistNet):
        def forward(self, x, p=math.inf):
            return 1000 * super().forward(x, p)

    network = Steep(shape=(1, 2, 2), classes=2, width=4, depth=2, mean=[0.5], std=0.5).eval()
    with pytest.raises(TypeError, match="Steep is a Steep, which inherits"):
        margin(network, torch.rand(3, 1, 2, 2))
