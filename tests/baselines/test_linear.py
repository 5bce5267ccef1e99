"""Linear bounds of conventional networks: below everything that the network computes, and never tighter than the LP."""

import highspy
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import linfdist as ld
from linfdist.baselines import ReLUNet
from linfdist.bounds import LinearBounds, linear, margins
from linfdist.bounds.interval import ball, nonlinear
from linfdist.bounds.windows import windows_of
from linfdist.models import DistNet
from linfdist.nn import Box

from .nets import cnn, inside, mlp, pixels

WAYS = {"crown-ibp": (False, False), "crown": (True, False), "fast-lin": (True, True)}
SEEDS = st.integers(0, 10**6)


def leads(net, way, box, best):
    return LinearBounds(net, *WAYS[way]).margins(box, best)


def by_intervals(net, box, best):
    return margins(net.readout)(net.features_box(box), best, 0.0).lower


@settings(max_examples=12)
@given(SEEDS, st.booleans(), st.sampled_from([0.0, 1e-6, 0.02, 0.3, 1.0]), st.booleans())
@torch.no_grad()
def test_no_image_of_the_box_is_below_the_bounds(seed, convolutional, eps, double):
    net = (cnn(seed) if convolutional else mlp(seed)).to(torch.float64 if double else torch.float32)
    x = pixels(net, 1, seed).to(net.any_tensor.dtype)
    box = ball(x, torch.full((1, 1, 1, 1), eps, dtype=torch.float64))
    best = net(x).argmax(1)
    z = net(inside(*box, 64, torch.Generator().manual_seed(seed))).double()
    lowest = (z[:, best] - z).amin(0)
    for way in WAYS:
        apart = leads(net, way, box, best)[0]
        assert apart[best] == torch.inf
        others = torch.arange(net.classes) != best
        assert (apart[others] <= lowest[others]).all()
        assert (apart[others] > -torch.inf).all()
        if eps == 0.0:  # a point: nothing but rounding is lost
            torch.testing.assert_close(apart[others], lowest[others], atol=1e-4, rtol=1e-4)


def relaxed(net, box, way, weight):
    """The optimum of the linear program whose ReLUs lie in their triangles, over the same boxes of neurons."""
    boxes = LinearBounds(net, *WAYS[way])._boxes(box, WAYS[way][0])
    program = highspy.Highs()
    program.setOptionValue("output_flag", False)

    def variables(low, high):
        return [program.addVariable(lb=a, ub=b) for a, b in zip(low.tolist(), high.tolist(), strict=True)]

    values = variables(box.lower.flatten().double(), box.upper.flatten().double())
    for layer, inputs in zip(net.body, boxes, strict=False):
        low, high = (side.flatten().double() for side in inputs)
        if nonlinear(layer):
            after = variables(low.relu(), high.relu())
            for x, y, a, b in zip(values, after, low.tolist(), high.tolist(), strict=True):
                program.addConstr(y - x >= 0)
                if b <= 0:
                    program.addConstr(y == 0)
                elif a < 0:
                    program.addConstr(y * (b - a) - b * x <= -a * b)
                else:
                    program.addConstr(y == x)
            values = after
        elif hasattr(layer, "inputs"):
            matrix, bias = layer.weight.double().numpy(), layer.bias.double().numpy()
            values = [program.qsum(matrix[k][j] * x for j, x in enumerate(values)) + bias[k] for k in range(len(bias))]
            free = variables(np.full(len(bias), -1e6), np.full(len(bias), 1e6))
            for x, y in zip(free, values, strict=True):
                program.addConstr(y - x == 0)
            values = free
        elif hasattr(layer, "std"):
            std, mean = (
                layer.std.item(),
                layer.mean.flatten().double().repeat_interleave(len(values) // len(layer.mean)),
            )
            values = [(x - m) * (1 / std) for x, m in zip(values, mean.tolist(), strict=True)]
    w, b = net.scores.linear.weight.double(), net.scores.linear.bias.double()
    row, constant = (weight @ w).tolist(), float(weight @ b)
    program.minimize(program.qsum(a * x for a, x in zip(row, values, strict=True)) + constant)
    return program.getInfo().objective_function_value


@pytest.mark.parametrize("way", WAYS)
@torch.no_grad()
def test_the_linear_program_of_the_same_relaxation_is_at_least_as_tight(way):
    """It is equal where every neuron of the bounds took the lines that are best for it; and not always larger."""
    tight = 0
    for seed in range(3):
        net = mlp(seed, hidden=(5, 4), shape=(1, 2, 2))
        x = pixels(net, 1, seed)
        box, best = ball(x, torch.tensor(0.15).double()), net(x).argmax(1)
        apart = leads(net, way, box, best)[0]
        for other in range(net.classes):
            if other == best:
                continue
            weight = torch.zeros(net.classes).double()
            weight[best], weight[other] = 1.0, -1.0
            optimum = relaxed(net, box, way, weight)
            z = net(inside(*box, 200, torch.Generator().manual_seed(seed))).double()
            assert apart[other] <= optimum + 1e-6
            assert optimum <= (z @ weight).min() + 1e-4
            tight += bool(apart[other] >= optimum - 1e-3)
    assert tight


@torch.no_grad()
def test_with_one_hidden_layer_there_is_nothing_to_tighten():
    net = mlp(5, hidden=(12,))
    x = pixels(net, 3)
    box, best = ball(x, torch.tensor(0.05).double()), net(x).argmax(1)
    assert torch.equal(leads(net, "crown", box, best), leads(net, "crown-ibp", box, best))


@torch.no_grad()
def test_where_theory_orders_the_bounds():
    """Boxes that CROWN pulls back lie within those of intervals, by construction; and where nothing bends within the
    box, all linear bounds are the same exact ones, and at least as good as intervals."""
    net = mlp(3, hidden=(9, 7, 6))
    x = pixels(net, 2)
    box, best = ball(x, torch.tensor(0.1).double()), net(x).argmax(1)
    bounds = LinearBounds(net, True)
    for wide, tight in zip(bounds._boxes(box, False), bounds._boxes(box, True), strict=True):
        assert (tight.lower >= wide.lower).all()
        assert (tight.upper <= wide.upper).all()
    assert (bounds._boxes(box, True)[-1].lower > bounds._boxes(box, False)[-1].lower).any()
    small = ball(x, torch.tensor(1e-5).double())
    ends = [leads(net, way, small, best) for way in WAYS]
    for other in ends[1:]:
        torch.testing.assert_close(other, ends[0], atol=1e-6, rtol=1e-6)
    finite = ends[0] < torch.inf
    assert (ends[0][finite] >= by_intervals(net, small, best)[finite] - 1e-6).all()


@torch.no_grad()
def test_layers_without_linear_bounds_are_named():
    net = DistNet((1, 3, 3), 4, 5, 2, [0.3], 0.3).eval()
    for way in WAYS:
        with pytest.raises(TypeError, match="NearestClass has no linear bounds"):
            ld.certify(net, torch.rand(2, 1, 3, 3), "0.1", method=way)
    stack = ld.nn.Stack(ld.nn.Flatten(), ld.nn.DistLinear(9, 3)).eval()
    with pytest.raises(TypeError, match="DistLinear has no linear bounds"):
        ld.certify(stack, torch.rand(0, 1, 3, 3), "0.1", method="crown")


@torch.no_grad()
def test_bounds_beyond_all_measure_prove_nothing():
    net = mlp(0).double()
    for parameter in net.parameters():
        parameter.mul_(1e60)
    x = pixels(net, 2).double()
    apart = LinearBounds(net, True).margins(Box(x, x), net(x).argmax(1))
    assert not ((apart > -torch.inf) & (apart < torch.inf)).any()


CONVOLUTIONS = {
    "padding on both": [[3, 4, 2, 1], [4, 4, 2, 1]],
    "padding on one, with a reach beyond two borders": [[2, 3, 1, 0], [3, 3, 2, 2]],
    "three layers": [[2, 2, 2, 0], [2, 3, 1, 1], [2, 2, 1, 1]],
}


@pytest.mark.parametrize("convolutions", CONVOLUTIONS.values(), ids=CONVOLUTIONS)
@torch.no_grad()
def test_windows_change_no_bound(convolutions, monkeypatch):
    torch.manual_seed(len(convolutions))
    net, used = ReLUNet((2, 11, 10), 3, [0.4, 0.2], 0.3, convolutions, [5], crop=10).eval(), []
    x = pixels(net, 3)
    best = net(x).argmax(1)
    for eps in (0.001, 0.05, 1.0):
        box = ball(x, torch.tensor(eps).double())
        monkeypatch.setattr(linear, "windows_of", lambda *layers: used.append(windows_of(*layers)) or used[-1])
        by_windows = [leads(net, way, box, best) for way in WAYS]
        monkeypatch.setattr(linear, "windows_of", lambda *layers: None)
        whole = [leads(net, way, box, best) for way in WAYS]
        for one, other in zip(by_windows, whole, strict=True):  # sums have other lengths, so other slacks for rounding
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)
    assert any(used)
