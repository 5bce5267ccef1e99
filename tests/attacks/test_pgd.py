"""The paper's PGD."""

from fractions import Fraction

import pytest
import torch
from torch.nn import functional

from linfdist.attacks import PGD
from linfdist.attacks.base import Ball

from .nets import many_pixels, random_net, two_classes


def images(count, seed=0):
    return torch.rand(count, 1, 3, 3, generator=torch.Generator().manual_seed(seed))


def test_it_is_the_attack_of_the_paper():
    """Written out again: start, steps, projection; where no iterate succeeds the last one comes back."""
    net, x, eps = random_net(2, size=5.0), images(16), Fraction(1, 50)
    y = net(x).argmax(1)
    found = PGD(seed=7)(net, x, y, eps)
    noise = torch.randn(1, 3, 3, generator=torch.Generator().manual_seed(7))
    ball = Ball.around(x, [eps])
    step = float(eps) / 4
    now = ball.clip(x + (noise * step).clamp(-2 * step, 2 * step))
    assert (now != x).any()
    for _ in range(20):
        pixels = now.clone().requires_grad_()
        functional.cross_entropy(net(pixels), y).backward()
        now = ball.clip(now + step * pixels.grad.sign())
    standing = ~found.broken
    assert standing.sum() > 8
    torch.testing.assert_close(found.images[standing], now[standing], rtol=0, atol=1e-7)


def test_it_breaks_one_pixel_beyond_the_boundary_and_not_before():
    """x = 1/4 between 0 and 1: the boundary is at 1/2."""
    net, x, y = two_classes(0.0, 1.0), torch.full((1, 1, 1, 1), 0.25), torch.tensor([0])
    assert not PGD()(net, x, y, Fraction(1, 4)).broken  # a tie is the first class
    found = PGD()(net, x, y, Fraction(1, 4) + Fraction(1, 10**6))
    assert found.broken
    assert found.images.item() > 0.5


def test_any_iterate_counts():
    """A narrow strip of another class: steps of eps/4 pass through it and beyond."""
    net = two_classes(0.0, 0.6)  # class 1 from 0.3 on
    x, y = torch.full((1, 1, 1, 1), 0.29), torch.tensor([0])
    found = PGD(steps=20)(net, x, y, Fraction(1, 10))
    assert found.broken
    assert 0.3 < found.images.item() < 0.34  # the first one there, not the corner at 0.39


def test_it_is_weak_where_all_pixels_must_move():
    """36 pixels, each by most of eps, one step of eps/4 at a time: 20 steps are too few."""
    net, x, y = many_pixels(), torch.full((1, 1, 6, 6), 0.3), torch.tensor([0])
    assert net(x).argmax() == 0
    assert not PGD()(net, x, y, Fraction(1, 4)).broken
    assert PGD(steps=400)(net, x, y, Fraction(1, 4)).broken


def test_same_seed_same_images_whatever_the_batch():
    net, x, eps = random_net(5), images(24), Fraction(1, 10)
    y = net(x).argmax(1)
    whole = PGD(seed=1)(net, x, y, eps)
    assert torch.equal(whole.images, PGD(seed=1)(net, x, y, eps).images)
    parts = [PGD(seed=1)(net, x[k : k + 7], y[k : k + 7], eps).images for k in range(0, 24, 7)]
    assert torch.equal(whole.images, torch.cat(parts))
    assert not torch.equal(whole.images, PGD(seed=2)(net, x, y, eps).images)


def test_double_precision():
    net, x = two_classes(0.0, 1.0, torch.float64), torch.full((1, 1, 1, 1), 0.25, dtype=torch.float64)
    found = PGD()(net, x, torch.tensor([0]), Fraction(1, 4) + Fraction(1, 10**12))
    assert found.broken
    assert found.images.dtype == torch.float64
    assert not PGD()(net, x, torch.tensor([0]), Fraction(1, 4) - Fraction(1, 10**12)).broken


def test_no_steps():
    with pytest.raises(ValueError, match="steps = 0"):
        PGD(steps=0)
