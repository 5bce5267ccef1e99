"""The base class marks the paper: what a search returns is clipped, tested, and never believed."""

import math
from fractions import Fraction

import pytest
import torch

from linfdist.attacks import ATTACKS, PGD, Attack, attack
from linfdist.models import DistNet, DistNetMLP

from ..ops.processes import ROOT
from .nets import random_net, two_classes

QUARTER = Fraction(1, 4)


class Says(Attack):
    """Returns what it is told to, and remembers what it was asked."""

    name = "says"

    def __init__(self, answer):
        self.answer, self.asked = answer, []

    def search(self, network, x, y, ball):
        self.asked.append(x.clone())
        return self.answer(x) if callable(self.answer) else self.answer.expand_as(x)


def one_pixel(*values):
    return torch.tensor(values)[:, None, None, None]


def test_images_outside_the_ball_are_clipped_to_it_before_they_are_tested():
    net, x, y = two_classes(0.0, 1.0), one_pixel(0.125, 0.375), torch.tensor([0, 0])
    found = Says(torch.ones(()))(net, x, y, QUARTER)  # 1 is class 1, but too far away
    assert found.images.flatten().tolist() == [0.375, 0.625]
    assert found.broken.tolist() == [False, True]
    assert found.size.tolist() == [0.25, 0.25]
    assert found.size.dtype == torch.float64


def test_every_image_is_inside_exactly():
    net, x, y = two_classes(0.0, 1.0), one_pixel(*(k / 255 for k in range(100))), torch.zeros(100, dtype=torch.int64)
    for eps in (Fraction(8, 255), Fraction(3, 10), Fraction(1, 3)):
        for answer in (torch.ones(()), -torch.ones(()), torch.tensor(math.inf)):
            for before, after in zip(
                x.flatten().tolist(), Says(answer)(net, x, y, eps).images.flatten().tolist(), strict=True
            ):
                assert 0 <= after <= 1
                assert abs(Fraction(after) - Fraction(before)) <= eps


def test_nan_is_no_attack():
    net, x, y = two_classes(0.0, 1.0), one_pixel(0.125), torch.tensor([0])
    found = Says(torch.tensor(math.nan))(net, x, y, QUARTER)
    assert torch.equal(found.images, x)
    assert not found.broken.any()


def test_what_is_wrong_already_is_broken_as_it_is_and_not_searched():
    net, x, y = two_classes(0.0, 1.0), one_pixel(0.125, 0.25, 0.75), torch.tensor([0, 1, 1])
    says = Says(lambda x: x + 0.05)
    found = says(net, x, y, QUARTER)
    assert [asked.flatten().tolist() for asked in says.asked] == [[0.125, 0.75]]
    assert found.broken.tolist() == [False, True, False]
    assert found.size[1] == 0
    assert torch.equal(found.images[1], x[1])


def test_an_empty_ball_is_not_searched():
    net, x, y = two_classes(0.0, 1.0), one_pixel(0.125, 0.25), torch.tensor([0, 1])
    says = Says(lambda x: x + 0.05)
    assert says(net, x, y, Fraction(0)).broken.tolist() == [False, True]
    assert not says.asked
    assert says(net, x[:0], y[:0], QUARTER).size.shape == (0,)


def test_each_image_may_have_its_own_eps():
    net, x, y = two_classes(0.0, 1.0), one_pixel(0.25, 0.25, 0.25), torch.tensor([0, 0, 0])
    found = Says(torch.ones(()))(net, x, y, [Fraction(1, 8), QUARTER, Fraction(1, 2)])
    assert found.images.flatten().tolist() == [0.375, 0.5, 0.75]
    assert found.broken.tolist() == [False, False, True]  # 0.5 is a tie: the first class wins


def state(net):
    return [(p.detach().clone(), p.requires_grad, None if p.grad is None else p.grad.clone()) for p in net.parameters()]


def assert_same(before, after):
    for (weight, wants, grad), (weight2, wants2, grad2) in zip(before, after, strict=True):
        assert torch.equal(weight, weight2)
        assert wants == wants2
        assert (grad is None and grad2 is None) or torch.equal(grad, grad2)


@pytest.mark.parametrize("name", [name for name in ATTACKS if name != "auto"])
def test_the_network_is_left_as_it_was(name):
    net = random_net(0)
    net.last.weight.requires_grad_(False)
    net.last.bias.grad = torch.ones_like(net.last.bias)
    x = torch.rand(6, 1, 3, 3)
    before, buffers, threads = state(net), [b.clone() for b in net.buffers()], torch.get_rng_state()
    attack(name)(net, x, net(x).argmax(1), Fraction(1, 10))
    assert_same(before, state(net))
    assert all(torch.equal(one, other) for one, other in zip(buffers, net.buffers(), strict=True))
    assert torch.equal(threads, torch.get_rng_state())
    assert not net.training
    assert x.grad is None


def test_the_network_is_left_as_it_was_after_an_error():
    net, x = random_net(0), torch.rand(2, 1, 3, 3)

    def fail(x):
        assert not any(parameter.requires_grad for parameter in net.parameters())
        raise KeyError("stop")

    with pytest.raises(KeyError, match="stop"):
        Says(fail)(net, x, net(x).argmax(1), QUARTER)
    assert all(parameter.requires_grad for parameter in net.parameters())


@pytest.mark.parametrize("name", [name for name in ATTACKS if name != "auto"])
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_callers_without_gradients_get_the_same(name, mode):
    net = random_net(3)
    x = torch.rand(8, 1, 3, 3)
    y = net(x).argmax(1)
    expected = attack(name)(net, x, y, Fraction(1, 5))
    with mode():
        found = attack(name)(net, x, y, Fraction(1, 5))
        assert torch.equal(found.images, expected.images)


def test_a_radius_may_be_text_or_any_number():
    net, x = random_net(3), torch.rand(8, 1, 3, 3)
    y = net(x).argmax(1)
    found = [PGD()(net, x, y, eps).images for eps in (QUARTER, "1/4", 0.25, ["0.25"] * 8)]
    assert all(torch.equal(each, found[0]) for each in found)


def test_bad_input():
    net, x, y, says = random_net(0), torch.rand(3, 1, 3, 3), torch.tensor([0, 1, 2]), Says(torch.zeros(()))
    with pytest.raises(TypeError, match=r"eps = None: must be text or a number, or a list"):
        says(net, x, y, None)
    with pytest.raises(TypeError, match=r"eps = None: must be text or a number"):
        says(net, x, y, [QUARTER, None, QUARTER])
    with pytest.raises(ValueError, match=r"eps = Fraction\(5, 4\): is more than 1; must be between 0 and 1"):
        says(net, x, y, Fraction(5, 4))
    with pytest.raises(ValueError, match=r"eps = '-1/4': is negative"):
        says(net, x, y, ["1/4", "-1/4", "1/4"])
    with pytest.raises(ValueError, match="2 radii for 3 images"):
        says(net, x, y, [QUARTER, QUARTER])
    with pytest.raises(ValueError, match=r"y must have shape \(3,\), one class per image; got \(2,\)"):
        says(net, x, y[:2], QUARTER)
    with pytest.raises(TypeError, match=r"y must be a tensor of integers, got torch.float32"):
        says(net, x, y.float(), QUARTER)
    with pytest.raises(ValueError, match="y must hold classes 0 to 3, got 0 to 4"):
        says(net, x, torch.tensor([0, 1, 4]), QUARTER)
    with pytest.raises(ValueError, match="y must hold classes 0 to 3, got -1 to 1"):
        says(net, x, torch.tensor([0, 1, -1]), QUARTER)
    with pytest.raises(TypeError, match="floating-point pixels"):
        says(net, x.byte(), y, QUARTER)
    with pytest.raises(ValueError, match="need images"):
        says(net, x[..., :2], y, QUARTER)
    for value in (math.nan, -1e-7, 1 + 1e-6):
        bad = x.clone()
        bad[1, 0, 1, 1] = value
        with pytest.raises(ValueError, match=r"\[0, 1\]"):
            says(net, bad, y, QUARTER)
    with pytest.raises(ValueError, match="one class"):
        says(DistNet((1, 3, 3), 1, 4, 2, [0.3], 0.3, identity_init=False).eval(), x, y * 0, QUARTER)
    assert not says.asked


def test_training_mode_is_refused_wherever_it_hides():
    x, y = torch.rand(2, 1, 3, 3), torch.tensor([0, 1])
    net = DistNetMLP((1, 3, 3), 4, 9, 2, [0.3], 0.3, head=4)
    for module in (net, net.body, net.head.hidden):
        net.eval()
        module.train()
        with pytest.raises(ValueError, match="training mode"):
            Says(torch.zeros(()))(net, x, y, QUARTER)


@pytest.mark.parametrize("name", ATTACKS)
def test_every_attack_is_made_by_its_name_and_has_a_row_in_the_docs(name):
    if name != "auto":  # needs an extra
        assert attack(name, seed=3).name == name
    docs = (ROOT / "docs" / "attacks.md").read_text(encoding="utf-8")
    assert f"\n| `{name}` |" in docs, f"docs/attacks.md needs a row of {name}"


def test_an_unknown_attack_is_told_which_there_are():
    with pytest.raises(ValueError, match=f"no attack 'fgsm': the attacks are {', '.join(ATTACKS)}$"):
        attack("fgsm")
