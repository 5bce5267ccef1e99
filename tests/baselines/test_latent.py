"""COLT and DiffAI: training on zonotopes, whole and hybrid, and on points that lie between two layers."""

import pytest
import torch
from torch.nn.functional import cross_entropy

import linfdist as ld
from linfdist.baselines import Plan, train
from linfdist.baselines.latent import Latent
from linfdist.baselines.methods import COLT, IBP, DiffAI
from linfdist.baselines.plan import Stage
from linfdist.bounds.interval import boxes, nonlinear
from linfdist.bounds.training import Bounds
from linfdist.bounds.zonotope import reach_of, zonotope_and_box, zonotope_of
from linfdist.models import DistNet
from linfdist.nn import Box, Stack

from .nets import cnn, mlp, pixels
from .test_train import digits, fresh, trained


def after(net, bends):
    """The layers up to a bend, as a stack of their own."""
    layers = list(net.body)
    places = [place for place, layer in enumerate(layers) if nonlinear(layer)]
    return Stack(*layers[: places[bends - 1] + 1]).eval()


def pushed(net, x, eps, bends, count=500):
    latent = Latent(net, x, eps, count, torch.Generator().manual_seed(0))
    for _ in range(bends):
        latent.bend()
    return latent


@pytest.mark.parametrize("make", [lambda: mlp(1, hidden=(9, 8, 7)), lambda: cnn(1)])
@torch.no_grad()
def test_estimated_bounds_are_near_those_of_the_zonotope(make):
    net, eps = make(), 0.03
    x = pixels(net, 2)
    box = Box((x - eps).clamp(min=0.0), (x + eps).clamp(max=1.0))
    for bends in (1, 2):
        latent = pushed(net, x, eps, bends)
        zonotope, _ = zonotope_and_box(after(net, bends), zonotope_of(box, 10**6, torch.float32), box, slack=False)
        torch.testing.assert_close(latent.zonotope.centre, zonotope.centre, atol=0.1, rtol=0.1)
        estimated = latent.zonotope.generators.abs().median(dim=1).values.sum()
        assert 0.85 < estimated / reach_of(zonotope).sum() < 1.15
        inner = latent.point([torch.ones_like(x), *(torch.ones_like(slope) for slope, _ in latent.bands)])
        if bends == 1:  # where bounds are not estimated, every point is one of the zonotope
            assert ((inner - zonotope.centre).abs() <= reach_of(zonotope) + 1e-5).all()
            middle = latent.point([torch.zeros_like(x), torch.zeros_like(inner)])
            torch.testing.assert_close(middle, zonotope.centre, atol=1e-5, rtol=1e-5)
    generator = torch.Generator().manual_seed(0)
    first = Latent(net, x, eps, 3, generator).next_bounds()
    assert torch.equal(generator.get_state(), torch.Generator().manual_seed(0).get_state())  # nothing to draw yet
    torch.testing.assert_close(first, boxes(list(after(net, 1))[:-1], box, slack=False)[-1])


def test_images_are_points_of_every_region_and_attacks_find_worse_ones():
    net = mlp(4, hidden=(9, 8, 7))
    x, y = pixels(net, 20), torch.arange(20) % 4
    losses = []
    for bends in (0, 1, 2):
        latent = pushed(net, x, 0.05, bends)
        start = latent.attacked(y, bends, 0)
        found = latent.attacked(y, bends, 8)
        assert not found.requires_grad
        assert start.shape == found.shape == (x if bends == 0 else after(net, bends)(x)).shape
        before, worse = (cross_entropy(latent.logits(each, bends, bends), y).item() for each in (start, found))
        assert worse > before
        losses.append(worse)
    assert losses[0] < losses[1] < losses[2]  # each region holds the one before, and more
    again = pushed(net, x, 0.05, 2)
    assert torch.equal(again.attacked(y, 2, 8), pushed(net, x, 0.05, 2).attacked(y, 2, 8))


def test_colt_goes_from_bend_to_bend_and_leaves_frozen_layers_alone():
    net = mlp(0, hidden=(9, 8, 7)).train()
    x, y = pixels(net, 6), torch.arange(6) % 4
    plan, places = Plan(eps=0.1, epochs=10, warm_up=1, ramp=4), []
    for step in range(100):
        stage = plan.at(step, 10)
        places.append(COLT.place(net, stage)[0])
        assert stage.target == 0.1
        assert (stage.done == 0.0) == (step <= 10)
    assert sorted(places) == places
    assert {place: places.count(place) for place in places} == {0: 40, 1: 30, 2: 30}
    for done, frozen, mix in (
        (0.0, 0, None),
        (0.05, 0, 0.5),
        (0.2, 0, 1.0),
        (0.4, 1, 2 / 3),
        (0.5, 1, 1.0),
        (1.0, 2, 1.0),
    ):
        stage = Stage(0.0, 0.1, 0.0, 0.0, 0.1, target=0.1, done=done)
        assert mix is None or COLT.place(net, stage) == (frozen, 2, pytest.approx(mix))
        net.zero_grad()
        loss, z = COLT(steps=2, count=9)(net, x, y, stage)
        torch.testing.assert_close(z, net(x))
        loss.backward()
        layers = [layer for layer in net.body if hasattr(layer, "weight")]
        assert [layer.weight.grad is None for layer in layers] == [place < frozen for place in range(3)]
        assert net.scores.linear.weight.grad.abs().sum() > 0


def test_colt_begins_with_a_small_eps():
    net = mlp(0, hidden=(9, 8, 7))
    x, y = pixels(net, 6), torch.arange(6) % 4
    stage = Stage(0.0, 0.1, 0.0, 0.0, 0.1, target=0.1, done=0.05)  # half of the time in which the losses are mixed
    loss, z = COLT(steps=2, count=9, growth=1.2, stable=0, sparse=0)(net, x, y, stage)
    latent = Latent(net, x, 0.5 * 1.05 * 1.2**2 * 0.1, 9, stage.generator("latent"))
    worst = cross_entropy(net(latent.attacked(y, 0, 2)), y)
    torch.testing.assert_close(loss, (worst + cross_entropy(z, y)) / 2)


def test_diffai_lies_between_a_point_and_intervals():
    net = cnn(4)
    x, y = pixels(net, 6), torch.arange(6) % 5
    stage = Stage(0.0, 0.05, 0.0, 1.0, 0.1, target=0.05)
    hybrid, intervals = DiffAI(terms=200).worst(net, x, y, stage), IBP().worst(net, x, y, stage)
    few = DiffAI(terms=5).worst(net, x, y, stage)
    assert cross_entropy(net(x), y) < hybrid < few < intervals
    none = Stage(0.0, 0.05, 0.0, 0.0, 0.1, target=0.05)
    assert torch.equal(DiffAI().worst(net, x, y, none), intervals)
    inner = DiffAI().worst(net, x, y, Stage(0.0, 0.02, 0.0, 1.0, 0.1, target=0.05))
    assert inner < IBP().worst(net, x, y, Stage(0.0, 0.02, 0.0, 1.0, 0.1))
    bounds = Bounds(net, x, 0.05)
    worth = torch.rand(x.shape)
    margins = bounds.zonotope_margins(y, worth, 7)
    assert (margins >= bounds.interval_margins(y) - 1e-4).all()
    assert (margins.gather(1, y[:, None]).abs() < 1e-4).all()
    margins.sum().backward()
    assert all(each.grad.isfinite().all() for each in net.parameters())


def test_colt_proves_by_zonotopes_what_adversarial_training_does_not():
    images, test = digits()
    net = fresh()
    net.load_state_dict(trained("adversarial").state_dict())
    plan = Plan(eps=0.1, epochs=7, warm_up=0, ramp=0, lr=3e-3, batch_size=128)
    train(net, images.images, images.labels, COLT(steps=4, count=20), plan)
    x, y = net.from_bytes(test.images[:100]), test.labels[:100]
    rates = [
        ld.certify(each, x, "0.1", y, method="zonotope", radii=False).certified.float().mean().item()
        for each in (trained("adversarial"), net)
    ]
    assert rates[1] > rates[0] + 0.05
    attacked = ld.attacks.attack("pgd")(net, x, y, ld.eps.parse_eps("0.1"))
    assert not (attacked.broken & ld.certify(net, x, "0.1", method="zonotope", radii=False).certified).any()


def test_what_makes_no_sense_is_refused():
    for make, what in (
        (lambda: DiffAI(terms=0), "terms = 0"),
        (lambda: COLT(steps=0), "steps = 0"),
        (lambda: COLT(growth=0.5), "growth = 0.5"),
        (lambda: COLT(stable=-1), "stable = -1"),
    ):
        with pytest.raises(ValueError, match=what):
            make()
    straight = mlp(0)
    straight.body = Stack(*(layer for layer in straight.body if not nonlinear(layer)))
    for net, what in (
        (DistNet((1, 3, 3), 4, 5, 2, [0.3], 0.3), "its part DistLinear has none of the bounds"),
        (straight, "but a ReLUNet has none"),
    ):
        with pytest.raises(TypeError, match=what):
            COLT().start(net, Stage(0.0, 0.1, 0.0, 0.0, 0.1))
