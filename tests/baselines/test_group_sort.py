"""Group Sort networks: as steep as they declare, certified by their margin, and never broken within it."""

import copy
from fractions import Fraction

import pytest
import torch

import linfdist as ld
from linfdist.attacks import attack
from linfdist.baselines import GroupSort, GroupSortNet
from linfdist.baselines.activations import project_rows
from linfdist.baselines.methods import GroupSortHinge
from linfdist.eps import parse_eps
from linfdist.models.base import rounding_error
from linfdist.nn import Box

from .nets import inside, pixels, trained


def net(seed, convolutional=False, gain=1.0):
    """Random weights; with gain 1, each neuron's have the norm 1, as after training."""
    torch.manual_seed(seed)
    layers = (
        {"convolutions": [[4, 3, 2, 1]], "hidden": [6], "group": 2} if convolutional else {"hidden": [9, 6], "group": 3}
    )
    found = GroupSortNet((2, 5, 5), 4, [0.4, 0.2], 0.3, **layers)
    GroupSortHinge().after_step(found)
    with torch.no_grad():
        for parameter in found.parameters():
            parameter.mul_(gain)
    return found.eval()


def nearest(row):
    """The nearest point of the ℓ1 ball by sorting, in float64."""
    size = row.double().abs()
    if size.sum() <= 1:
        return row.double()
    falling = size.sort(descending=True).values
    thresholds = (falling.cumsum(0) - 1) / torch.arange(1, len(row) + 1)
    threshold = thresholds[falling > thresholds][-1]
    return (size - threshold).clamp(min=0) * row.double().sign()


def test_rows_are_projected_to_the_nearest_of_norm_one():
    torch.manual_seed(0)
    weight = torch.randn(40, 3, 2, 2) * torch.logspace(-3, 3, 40)[:, None, None, None]
    weight[0], weight[1, 0] = 0.0, 1e30
    before, inner = weight.clone(), weight.flatten(1).abs().sum(1) <= 1
    project_rows(weight)
    assert 3 < inner.sum() < 37
    assert torch.equal(weight[inner], before[inner])
    for row, old in zip(weight[2:], before[2:], strict=True):
        torch.testing.assert_close(row.flatten().double(), nearest(old.flatten()), atol=1e-4, rtol=1e-5)
    assert (weight.flatten(1).abs().sum(1) <= 1 + 1e-5).all()


@pytest.mark.parametrize("group", [2, 3])
@torch.no_grad()
def test_groups_are_sorted_and_boxes_are_tight(group):
    layer, generator = GroupSort(group), torch.Generator().manual_seed(0)
    lower = torch.randn(1, 6, 2, 2, generator=generator)
    box = Box(lower, lower + torch.rand(lower.shape, generator=generator))
    x = inside(*box, 50, generator)
    y, bounds = layer(x), layer.forward_box(box)
    expected = x.view(50, 6 // group, group, 2, 2).sort(2).values.view_as(x)
    assert torch.equal(y, expected)
    assert ((bounds.lower <= y) & (y <= bounds.upper)).all()
    assert torch.equal(bounds.lower, layer(box.lower))  # attained
    box.upper[0, 1, 0, 0] = torch.nan
    unknown = layer.forward_box(box).lower.isnan()
    assert unknown[0, :group, 0, 0].all()  # whatever is not known may be at any place of its group
    assert unknown.sum() == group


@pytest.mark.parametrize("convolutional", [False, True])
@torch.no_grad()
def test_the_lipschitz_constant_is_never_rounded_down_and_never_exceeded(convolutional):
    found = net(0, convolutional)
    steep = Fraction(1) / Fraction(float(found.body.layers[0].std))
    for layer in (*found.body, found.scores.linear):
        for name, weight in layer.named_parameters():
            if name == "weight":
                steep *= max(sum(abs(Fraction(w)) for w in row) for row in weight.flatten(1).tolist())
    declared = Fraction(found.lipschitz) * Fraction(found.scores.lipschitz)
    assert steep <= declared <= steep * Fraction(1001, 1000)
    assert declared < Fraction(1001, 300)  # 1/std
    x = torch.rand(200, 2, 5, 5)
    moved = (x + 0.1 * torch.randn_like(x).sign()).clamp(0, 1)
    apart = (found(x) - found(moved)).abs().amax(1) / (x - moved).abs().flatten(1).amax(1)
    assert 0 < apart.max() <= float(declared) * 1.0001
    for seed in range(3):
        other = net(seed, convolutional, gain=3.0)
        z = copy.deepcopy(other).double()(x.double())
        assert 0 < (other(x).double() - z).abs().max() <= rounding_error(other)


@pytest.mark.parametrize("convolutional", [False, True])
@torch.no_grad()
def test_no_certificate_is_broken(convolutional):
    found = net(1, convolutional)
    x = pixels(found, 8)
    proofs = {method: ld.certify(found, x, "0.001", method=method) for method in ("margin", "box")}
    prediction = proofs["margin"].prediction
    assert torch.equal(prediction, found(x).argmax(1))
    assert (proofs["box"].radius >= proofs["margin"].radius).all()
    assert (proofs["box"].radius > 1.2 * proofs["margin"].radius).any()
    assert proofs["margin"].certified.any()
    best = proofs["box"].radius
    for name in ("pgd", "strong"):
        assert not attack(name)(found, x, prediction, [parse_eps(radius) for radius in best.tolist()]).broken.any()
        assert attack(name)(found, x, prediction, parse_eps("0.9")).broken.any()  # the attacks are not blind
    for corner in (torch.zeros_like(x), torch.ones_like(x), torch.rand_like(x).round()):
        moved = x + (best[:, None, None, None] * 0.9999).float() * (2 * corner - 1)
        assert torch.equal(found(moved.clamp(0, 1)).argmax(1), prediction)


def test_what_is_not_known_of_them_is_refused():
    found, x = net(0), torch.rand(2, 2, 5, 5)
    with pytest.raises(TypeError, match="GroupSort has no linear bounds"):
        ld.certify(found, x, "0.1", method="crown")
    with pytest.raises(ValueError, match="training mode"):
        ld.certify(net(0).train(), x, "0.1", method="margin")
    with pytest.raises(ValueError, match="7 channels cannot be sorted in groups of 2"):
        GroupSortNet((1, 5, 5), 3, [0.5], 0.5, hidden=[8, 7])
    with pytest.raises(ValueError, match="group = True"):
        GroupSortNet((1, 5, 5), 3, [0.5], 0.5, hidden=[8], group=True)
    with pytest.raises(ValueError, match="stretch = 0"):
        GroupSortHinge(stretch=0)
    with torch.no_grad():
        found.body.layers[2].weight[0, 0] = torch.nan
    with pytest.raises(ValueError, match="not finite"):
        ld.certify(found, x, "0.1", method="margin")


def test_files_hold_them_and_files_that_lie_are_refused(tmp_path):
    found, file = net(0, convolutional=True), tmp_path / "net.safetensors"
    ld.models.save(found, file)
    loaded, x = ld.load(file), pixels(found, 3)
    assert isinstance(loaded, GroupSortNet)
    assert loaded.config == found.config
    assert torch.equal(loaded(x), found(x))
    for group in (0, 4, "2", 10**12):
        found.config = {**loaded.config, "group": group}
        ld.models.save(found, file)
        with pytest.raises(ValueError, match="cannot be built"):
            ld.load(file)


def test_training_keeps_the_constant_and_widens_the_margin():
    found, x, y = trained(GroupSortHinge(), lr=2e-2)
    assert found.lipschitz * found.scores.lipschitz <= 1.0001 / float(found.body.layers[0].std)
    assert (found(x).argmax(1) == y).float().mean() > 0.75
    certified = {way: ld.certify(found, x, "0.05", y, method=way, radii=False).certified for way in ("margin", "box")}
    assert certified["margin"].float().mean() > 0.3
    assert not (certified["margin"] & ~certified["box"]).any()
    assert not attack("pgd")(found, x, y, parse_eps("0.05")).broken[certified["box"]].any()
