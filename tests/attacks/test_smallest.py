"""The smallest perturbation found."""

from fractions import Fraction

import pytest
import torch

from linfdist.attacks import PGD, smallest
from linfdist.models import DistNet

from ..certificates.nets import margin
from .nets import two_classes


def test_it_finds_the_boundary():
    """Class 1 from 1/2 on."""
    net = two_classes(0.0, 1.0)
    x = torch.tensor([0.0, 0.25, 0.49, 0.75, 1.0])[:, None, None, None]
    y = torch.tensor([0, 0, 0, 1, 1])
    for start in (Fraction(1, 100), Fraction(1, 4), Fraction(1)):
        found = smallest(net, x, y, start)
        assert found.broken.all()
        expected = torch.tensor([0.5, 0.25, 0.01, 0.25, 0.5], dtype=torch.float64)
        assert ((found.size >= expected - 1e-6) & (found.size <= expected * 1.01)).all()
        assert torch.equal(net(found.images).argmax(1), 1 - y)


def test_it_lies_between_the_certificate_and_one_attack(trained):
    net, x, y = trained.network, trained.x[:12], trained.y[:12]
    proof = margin(net, x)
    found = smallest(net, x, y)
    right = proof.prediction == y
    assert right.sum() > 6
    assert found.broken.all()
    assert (net(found.images).argmax(1) != y).all()
    assert (found.size[right] > proof.radius[right]).all()
    assert (found.size[right] <= 1.02 * proof.radius[right]).float().mean() > 0.5  # mostly it is tight
    assert (found.size[~right] == 0).all()
    for k in range(12):
        size = max(
            abs(Fraction(a) - Fraction(b))
            for a, b in zip(x[k].flatten().tolist(), found.images[k].flatten().tolist(), strict=True)
        )
        assert size == Fraction(found.size[k].item())


def test_a_network_that_always_says_the_same_is_never_broken():
    net = DistNet((1, 2, 2), 2, 1, 1, [0.0], 1.0).eval()
    with torch.no_grad():
        net.last.weight.copy_(torch.tensor([[0.5] * 4, [9.0] * 4]))
    x, y = torch.rand(3, 1, 2, 2), torch.tensor([0, 0, 1])
    found = smallest(net, x, y)
    assert found.broken.tolist() == [False, False, True]
    assert found.size[2] == 0
    assert (found.size[:2] <= 1).all()


def test_another_attack_and_no_images():
    net, x, y = two_classes(0.0, 1.0), torch.full((1, 1, 1, 1), 0.25), torch.tensor([0])
    assert 0.25 < smallest(net, x, y, attack=PGD()).size.item() < 0.2525
    assert smallest(net, x[:0], y[:0]).size.shape == (0,)


def test_bad_options():
    net, x, y = two_classes(0.0, 1.0), torch.full((1, 1, 1, 1), 0.25), torch.tensor([0])
    for start in (Fraction(0), Fraction(3, 2)):
        with pytest.raises(ValueError, match="start = "):
            smallest(net, x, y, start)
    with pytest.raises(ValueError, match="rounds = 0"):
        smallest(net, x, y, rounds=0)
