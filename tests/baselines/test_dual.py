"""The dual bounds that CAP and PVT train on: below everything that the network computes, whatever the duals are."""

import pytest
import torch
from torch.nn.functional import cross_entropy

import linfdist as ld
from linfdist.baselines.latent import by_parallel_lines
from linfdist.baselines.methods import CAP, PVT
from linfdist.baselines.methods.relaxed import by_duals
from linfdist.baselines.plan import Stage
from linfdist.bounds import LinearBounds
from linfdist.bounds.forms import Forms
from linfdist.bounds.interval import ball, boxes, nonlinear
from linfdist.bounds.training import Bounds
from linfdist.certificates.methods import contained
from linfdist.nn import Box

from .nets import cnn, inside, mlp, pixels, trained

EPS = 0.05
STAGE = Stage(0.0, EPS, 0.0, 1.0, 0.1)


def around(net, seed=0):
    x = pixels(net, 1, seed)
    return x, ball(x, torch.tensor(EPS).double())


def started(net, seed, scale):
    """PVT with a verifier whose parameters are random, and not what a training has found."""
    method, generator = PVT(hidden=5), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in method.start(net, STAGE):
            parameter.add_(scale * torch.randn(parameter.shape, generator=generator))
    return method


@pytest.mark.parametrize("make", [mlp, cnn])
@torch.no_grad()
def test_boxes_by_parallel_lines_hold_what_is_computed_and_are_those_of_fast_lin(make):
    net = make(1)
    _, box = around(net)
    found, plain = by_parallel_lines(net.body, box), boxes(net.body, box, slack=False)
    values = inside(*box, 200, torch.Generator().manual_seed(0))
    bends = [k for k, layer in enumerate(net.body) if nonlinear(layer)]
    for k, layer in enumerate(net.body):
        assert ((found[k].lower - 1e-4 <= values) & (values <= found[k].upper + 1e-4)).all()
        values = layer(values)
    second = bends[1]  # of the boxes by lines, the only one that no other one is made from
    proved = LinearBounds(net, through=True, parallel=True)._boxes(box, through=True)[second]
    mixed = (plain[second].lower < 0) & (plain[second].upper > 0)
    assert mixed.any()
    for end, side, best in ((0, -1, torch.maximum), (1, 1, torch.minimum)):
        torch.testing.assert_close(
            proved[end][mixed], best(found[second][end], plain[second][end])[mixed], atol=1e-3, rtol=1e-3
        )
        assert (side * (plain[second][end] - found[second][end])[mixed] > 1e-3).any()  # lines are worth their time


@torch.no_grad()
def test_projections_estimate_the_same_boxes_and_more_of_them_do_it_better():
    net = cnn(1)
    _, box = around(net)
    exact, off = by_parallel_lines(net.body, box), []
    last = [k for k, layer in enumerate(net.body) if nonlinear(layer)][-1]
    for draws in (9, 2001):
        found = by_parallel_lines(net.body, box, draws, torch.Generator().manual_seed(0))
        width, true = (each[last].upper - each[last].lower for each in (found, exact))
        off.append(float((width / true - 1).abs().mean()))
    assert off[1] < 0.1 < off[0] < 1


@torch.no_grad()
def test_any_duals_give_a_bound_and_the_bound_is_attained():
    torch.manual_seed(0)
    lower = 2 * torch.randn(1, 7, dtype=torch.float64)
    box = Box(lower, lower + 2 * torch.rand_like(lower))
    weight, duals, row = (
        torch.randn(50, 7).double(),
        3 * torch.randn(50, 7).double(),
        torch.zeros(50, dtype=torch.int64),
    )
    bound = by_duals(Forms(weight, torch.ones(50).double(), row), duals, box)
    assert torch.equal(bound.weight, duals)

    def gap(x):
        return (weight * x.relu()).sum(1) + 1 - (duals * x).sum(1) - bound.offset

    for x in inside(*box, 200, torch.Generator().manual_seed(1)):
        assert (gap(x) >= -1e-12).all()
    ends = torch.stack([*(side.expand(50, 7) for side in box), torch.zeros(50, 7).clamp(*box)])
    worst = (weight * ends.relu() - duals * ends).argmin(0, keepdim=True)
    assert (gap(ends.gather(0, worst)[0]).abs() < 1e-12).all()


@pytest.mark.parametrize("make", [mlp, cnn])
@torch.no_grad()
def test_the_worst_case_is_above_every_image_of_the_ball(make):
    net = make(4)
    for seed, method in enumerate([CAP(draws=0), started(net, 0, 0.0), started(net, 1, 0.5), started(net, 2, 3.0)]):
        (x, box), y = around(net, seed), torch.tensor([seed % net.classes])
        z = net(inside(*box, 100, torch.Generator().manual_seed(seed)))
        losses = cross_entropy(z, y.expand(len(z)), reduction="none")
        assert losses.max() <= method.worst(net, x, y, STAGE) + 1e-5
        small = Stage(0.0, 1e-6, 0.0, 1.0, 0.1)
        torch.testing.assert_close(method.worst(net, x, y, small), cross_entropy(net(x), y), atol=2e-3, rtol=2e-3)


def test_a_verifier_starts_with_parallel_lines_and_learns_better_duals():
    net = mlp(4)
    x, y = pixels(net, 4), torch.arange(4)
    method = PVT(hidden=8)
    with pytest.raises(RuntimeError, match="no verifier yet"):
        method.worst(net, x, y, STAGE)
    learned = torch.optim.Adam(method.start(net, STAGE), lr=0.05)
    with torch.no_grad():
        start = Bounds(net, x, EPS, parallel=True).linear_margins(y)
        torch.testing.assert_close(method.margins(net, x, y, EPS), start, atol=1e-4, rtol=1e-4)
    for _ in range(15):
        learned.zero_grad()
        (-method.margins(net, x, y, EPS).sum()).backward()
        learned.step()
    better = method.margins(net, x, y, EPS).detach() - start
    assert better.sum() > 0.02 * start.abs().sum()
    method.start(net, STAGE)  # whatever was learned before is gone
    torch.testing.assert_close(method.margins(net, x, y, EPS).detach(), start, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(("method", "way"), [(CAP(draws=8), "fast-lin"), (PVT(hidden=8), "crown-ibp")])
def test_what_they_train_is_certified(method, way):
    net, x, y = trained(method, lr=1e-2)
    assert (net(x).argmax(1) == y).float().mean() > 0.8
    assert way in (*method.certified_by, *contained("crown"))
    assert ld.certify(net, x, "0.1", y, method=way, radii=False).certified.float().mean() > 0.35
    assert not ld.certify(net, x, "0.1", y, method="box", radii=False).certified.any()  # intervals are not enough


def test_settings_that_make_no_sense_are_refused():
    with pytest.raises(ValueError, match="draws = -1"):
        CAP(draws=-1)
    with pytest.raises(ValueError, match="hidden = 0"):
        PVT(hidden=0)
