"""A radius for each pixel: nothing within such a box changes the class, whatever its numbers and shape."""

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import linfdist as ld

from ..certificates.nets import head_net, images, trained_net, two_classes

SHAPES = [(24, 1, 3, 3), (1, 1, 3, 3), (24, 1, 1, 1), (3, 3), (3, 1), (1,), ()]


def network(kind):
    return trained_net()[0] if kind == "plain" else head_net(2, conv=kind == "convolution")


def within(x, eps, towards):
    """The last float of each pixel's range on the way to an end, by exact arithmetic."""
    moved = (x.double() + towards * eps).clamp(0, 1).float()
    for _ in range(3):
        steps = zip(moved.flatten().tolist(), x.flatten().tolist(), eps.expand_as(x).flatten().tolist(), strict=True)
        far = [abs(Fraction(a) - Fraction(b)) > Fraction(e) for a, b, e in steps]
        moved = torch.where(torch.tensor(far).view(x.shape), torch.nextafter(moved, x), moved)
    return moved


def count_broken(net, x, eps, proof, tries=40):
    """Certified images that some image of their box contradicts: corners, the lead of each class, pixel by pixel."""
    wrong = torch.zeros(len(x), dtype=torch.bool)
    ends = within(x, eps, torch.tensor(-1.0)), within(x, eps, torch.tensor(1.0))
    for _ in range(tries):
        moved = torch.where(torch.rand_like(x) < 0.5, *ends)
        wrong |= net(moved).argmax(1) != proof.prediction
    for p in (8.0, 60.0):
        for other in range(net.classes):
            start = x.clone().requires_grad_()
            z = net(start, p)
            (z[:, other] - z.gather(1, proof.prediction[:, None])[:, 0]).sum().backward()
            wrong |= net(torch.where(start.grad > 0, ends[1], ends[0])).argmax(1) != proof.prediction
    return int((wrong & proof.certified).sum()), int(wrong.sum())


@settings(max_examples=14)
@given(
    seed=st.integers(0, 10**6), kind=st.sampled_from(["plain", "head", "convolution"]), shape=st.sampled_from(SHAPES),
    scale=st.sampled_from([1e-45, 1e-9, 0.02, 0.1, 0.4, 1.0]), dtype=st.sampled_from([torch.float32, torch.float64]),
)  # fmt: skip
def test_nothing_within_the_box_changes_the_class(seed, kind, shape, scale, dtype):
    torch.manual_seed(seed)
    net, x = network(kind), images(24, seed)
    eps = (torch.rand(shape, dtype=torch.float64) * scale * (torch.rand(shape) < 0.7)).to(dtype)
    proof = ld.certify(net, x, eps, radii=False)
    assert count_broken(net, x, eps.double(), proof)[0] == 0


def test_these_attacks_are_worth_their_name():
    torch.manual_seed(0)
    for kind in ("plain", "head"):
        net, x = network(kind), images(24, 3)
        eps = torch.rand(24, 1, 3, 3, dtype=torch.float64) * 0.4
        proof = ld.certify(net, x, eps, radii=False)
        assert count_broken(net, x, eps, proof)[1] > 3
        assert ld.certify(net, x, eps / 8, radii=False).certified.any()


@pytest.mark.parametrize("kind", ["plain", "head", "convolution"])
@pytest.mark.parametrize("eps", [0.0, 0.05, float(torch.tensor(0.1)), 1.0])
def test_one_number_everywhere_is_the_ball(kind, eps):
    net, x = network(kind), images(24, 5)
    ball = ld.certify(net, x, eps, radii=False).certified
    for shape in SHAPES:
        box = ld.certify(net, x, torch.full(shape, eps, dtype=torch.float64), radii=False).certified
        assert torch.equal(box, ball), shape


def test_a_float32_radius_means_its_exact_value():
    """0.1 as a float32 is more than 1/10: whatever holds for it holds for 1/10, and it is not rounded to 0.1."""
    for start in (0.0, 0.25, 0.3):
        eps = torch.tensor(0.1)
        x = torch.full((1, 1, 1, 1), start)
        last = within(x, eps.double(), torch.tensor(1.0)).item()
        flips = two_classes(-(2.0**-30), 2 * last + 2.0**-30)  # ties or flips at the last float of the box
        assert flips(torch.full_like(x, last)).diff() >= 0
        assert not ld.certify(flips, x, eps, radii=False).certified.item()


@pytest.mark.parametrize("size", [5e-324, 1e-320, 1e-45, 1e-40, 2.0**-126])
@pytest.mark.parametrize("flush", [False, True])
def test_the_smallest_radii_are_not_lost(size, flush):
    """A class that begins one denormal step from black: a radius that reaches it is not rounded to nothing."""
    x, step = torch.zeros(1, 1, 1, 1), torch.tensor(1e-45)
    net = two_classes(0.0, step.item())
    with torch.no_grad():
        net.last.bias.copy_(torch.tensor([0.0, 1e-45]))
    if flush and not torch.set_flush_denormal(True):
        pytest.skip("this CPU cannot")
    try:
        certified = ld.certify(net, x, torch.tensor(size, dtype=torch.float64), radii=False).certified.item()
    finally:
        torch.set_flush_denormal(False)
    same = net(x).argmax() == net(x + step).argmax() and net(x + step).diff() != 0
    assert not certified or same or size < step.item()


def test_frozen_pixels_do_not_count():
    """Only the pixels with a radius move: others may be as decisive as they like."""
    net, x = trained_net()[0], images(24, 7)
    eps = torch.zeros(3, 3)
    eps[0] = 0.05
    some = ld.certify(net, x, eps, radii=False).certified
    all_ = ld.certify(net, x, "0.05", radii=False).certified
    assert (some >= all_).all()
    assert (some > all_).any()
    assert ld.certify(net, x, torch.zeros(()), radii=False).certified.all()


def test_grad_and_strange_memory_change_nothing():
    net, x = trained_net()[0], images(24, 7)
    eps = torch.rand(24, 1, 3, 3) * 0.1
    expected = ld.certify(net, x, eps).certified
    with torch.inference_mode():
        inference = eps.clone()
    for same in (eps.clone().requires_grad_(), eps.permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0), inference):
        assert torch.equal(ld.certify(net, x, same).certified, expected)
    row = torch.rand(3)
    spread = ld.certify(net, x, row.expand(24, 1, 3, 3)).certified
    assert torch.equal(spread, ld.certify(net, x, row.repeat(24, 1, 3, 1)).certified)


@pytest.mark.parametrize(
    ("eps", "error"),
    [
        (torch.full((3, 3), -1e-45), ValueError),
        (torch.full((3, 3), math.nan), ValueError),
        (torch.full((3, 3), math.inf), ValueError),
        (torch.full((3, 3), 8.0), ValueError),
        (torch.zeros(4, 3), ValueError),
        (torch.zeros(1, 24, 1, 3, 3), ValueError),
        (torch.zeros(0), ValueError),
        (torch.zeros(3, 3, dtype=torch.int64), TypeError),
        (torch.zeros(3, 3, dtype=torch.complex64), TypeError),
        (torch.zeros(3, 3).to_sparse(), TypeError),
        (torch.zeros(3, 3, device="meta"), TypeError),
    ],
    ids=str,
)
def test_what_is_no_box_is_refused(eps, error):
    with pytest.raises(error, match="eps"):
        ld.certify(trained_net()[0], images(24), eps)
