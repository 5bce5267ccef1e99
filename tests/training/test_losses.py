"""Losses, against values computed by hand, brute force and autograd."""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F

from linfdist import recipes
from linfdist.bounds.head import worst_margins
from linfdist.bounds.margin_reach import margin_reach
from linfdist.data import info
from linfdist.nn import Head
from linfdist.training.losses import (
    LOSSES,
    clipped_hinge_loss,
    hinge_loss,
    ibp_hinge_loss,
    ibp_loss,
    worst_logits,
)
from linfdist.training.objective import Objective, build_network
from linfdist.training.schedule import state_at

# t = 2; m by hand:      (0, 1, -1)        (-0.5, 0, 3)       (0, -3, -2)
Z = torch.tensor([[3.0, 2.0, 0.0], [0.0, 2.5, 3.5], [5.0, 0.0, 1.0]], dtype=torch.float64)
Y = torch.tensor([0, 1, 0])
T = 2.0


def test_hinge_by_hand():
    largest, mean = [1, 3, 0], [1 / 3, 1, 0]
    expected = sum(0.75 * a + 0.25 * b for a, b in zip(largest, mean, strict=True)) / 3
    assert float(hinge_loss(Z, Y, T)) == pytest.approx(expected)
    assert float(hinge_loss(Z, Y, T, mean_weight=0.0)) == pytest.approx(4 / 3)  # Fashion-MNIST: the largest only
    assert float(hinge_loss(Z, Y, T, mean_weight=1.0)) == pytest.approx(4 / 9)


def test_clipped_hinge_by_hand():
    assert float(clipped_hinge_loss(Z, Y, T)) == pytest.approx((0.5 + 1 + 0) / 3)


def test_gradients_of_the_hinges_by_hand():
    z = Z.clone().requires_grad_()
    hinge_loss(z, Y, T, mean_weight=0.0).backward()
    assert torch.equal(z.grad * 3, torch.tensor([[-1.0, 1, 0], [0, -1, 1], [0, 0, 0]]).double())
    z.grad = None
    clipped_hinge_loss(z, Y, T).backward()  # the misclassified image has none
    torch.testing.assert_close(z.grad * 3 * T, torch.tensor([[-1.0, 1, 0], [0, 0, 0], [0, 0, 0]]).double())


@pytest.mark.parametrize("loss", [hinge_loss, clipped_hinge_loss])
def test_gradients_of_the_hinges(loss):
    z, y = torch.randn(7, 5, dtype=torch.float64, requires_grad=True), torch.randint(5, (7,))
    assert torch.autograd.gradcheck(lambda z: loss(z, y, 1.3), z)


def test_scaled_cross_entropy():
    recipe = recipes.load("mnist-ce").override({"threshold": "0.5"})
    loss = LOSSES["scaled_ce"](recipe, lipschitz=4.0).double()  # t = 2
    loss.scale.data.fill_(0.7)
    z = Z.clone().requires_grad_()
    value, logits = loss(lambda x, p: x, z, Y, state_at(recipe, 0, 1))  # λ = 0.05
    assert logits is z
    exps = (0.7 * Z).exp()
    likelihood = exps.gather(1, Y[:, None])[:, 0] / exps.sum(1)
    assert value.item() == pytest.approx(0.5 + 0.05 * float(-likelihood.log().mean()))
    value.backward()
    expected_z = ((exps / exps.sum(1, keepdim=True) * Z).sum(1) - Z.gather(1, Y[:, None])[:, 0]).mean()
    assert float(loss.scale.grad) == pytest.approx(0.05 * float(expected_z))


@pytest.fixture
def head():
    return Head(3, 4, 5).double()


def outputs(head, features, y, eps):
    """z_j - z_y at all corners, and at random points inside."""
    corners = torch.tensor(list(itertools.product((-1.0, 1.0), repeat=3)), dtype=torch.float64)
    moves = torch.cat([corners, torch.rand(200, 3, dtype=torch.float64) * 2 - 1]) * eps
    z = head(features[:, None] + moves)  # (B, moves, M)
    return z - z.gather(2, y[:, None, None].expand(-1, z.shape[1], 1))


def test_ibp_bounds_enclose(head):
    features, y = torch.randn(6, 3, dtype=torch.float64), torch.randint(5, (6,))
    for eps in (0.0, 0.01, 0.3, 2.0):
        bounds = worst_margins(head, features, y, eps)
        assert (outputs(head, features, y, eps).amax(1) <= bounds + 1e-12).all()
        assert not bounds.gather(1, y[:, None]).any()
    torch.testing.assert_close(worst_margins(head, features, y, 0.0), outputs(head, features, y, 0.0)[:, 0])


def test_ibp_bounds_are_those_of_brute_force(head):
    """Eq. (9): hidden units each at its worst, then the largest difference over the corners of their box."""
    features, y, eps = torch.randn(3, dtype=torch.float64), 2, 0.4
    first, second = head.hidden.weight / math.sqrt(3), head.output.weight / math.sqrt(4)
    signs = torch.tensor(list(itertools.product((-1.0, 1.0), repeat=3)), dtype=torch.float64)
    units = torch.tanh((features + eps * signs) @ first.T + head.hidden.bias)  # (8, 4)
    ends = torch.stack([units.amin(0), units.amax(0)])  # (2, 4)
    corners = torch.stack([ends[list(choice), range(4)] for choice in itertools.product((0, 1), repeat=4)])  # (16, 4)
    z = corners @ second.T + head.output.bias
    expected = (z - z[:, [y]]).amax(0)
    torch.testing.assert_close(worst_margins(head, features[None], torch.tensor([y]), eps)[0], expected)


def test_ibp_gradients(head):
    for bias in (head.hidden.bias, head.output.bias):
        torch.nn.init.normal_(bias)
    features = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    y = torch.tensor([0, 1, 4, 1])

    def loss(features, *_):
        return ibp_loss(head, features, head(features), y, 0.2, 0.3)

    assert torch.autograd.gradcheck(loss, (features, *head.parameters()))


def test_kappa_weighs_the_natural_loss(head):
    features, y = torch.randn(6, 3, dtype=torch.float64), torch.randint(5, (6,))
    z = head(features)
    natural, worst = F.cross_entropy(z, y), F.cross_entropy(worst_margins(head, features, y, 0.1), y)
    assert worst > natural
    for kappa in (0.0, 0.3, 1.0):
        value = ibp_loss(head, features, z, y, 0.1, kappa)
        torch.testing.assert_close(value, kappa * natural + (1 - kappa) * worst)


@pytest.mark.parametrize("eps", [0.0, 1e-3, 0.05, 0.3])
def test_the_hinge_of_the_worst_case(head, eps):
    """0 where the ball is proved, 1 where the image is wrong, whatever the size of the logits."""
    features = torch.randn(40, 3, dtype=torch.float64)
    y = head(features).topk(2, 1).indices[torch.arange(40), torch.arange(40) % 2]  # every other image is wrong
    pairs = list(zip(features, y, strict=True))

    def each():
        return torch.stack([ibp_hinge_loss(head, f[None], head(f[None]), label[None], eps) for f, label in pairs])

    values, worst = each(), worst_margins(head, features, y, eps).scatter(1, y[:, None], -1.0).amax(1)
    assert (values[1::2] == 1).all()
    assert torch.equal(values[::2] == 0, (worst <= 0)[::2])
    assert ((values >= 0) & (values <= 1)).all()
    torch.testing.assert_close(ibp_hinge_loss(head, features, head(features), y, eps), values.mean())
    for parameter in head.output.parameters():
        parameter.data *= 8
    torch.testing.assert_close(each(), values)


def test_gradients_of_the_hinge_of_the_worst_case(head):
    features = torch.randn(40, 3, dtype=torch.float64)
    y, eps = head(features).argmax(1), 0.3
    worst = worst_margins(head, features, y, eps).scatter(1, y[:, None], -1.0).amax(1)
    between = (worst > 0).nonzero()[:, 0]  # right, but not proved
    assert 2 < len(between) < 40
    features, y = features[between].requires_grad_(), y[between]

    def loss(features, *_):
        return ibp_hinge_loss(head, features, head(features), y, eps)

    assert torch.autograd.gradcheck(loss, (features, *head.parameters()))


def test_the_hinge_of_the_worst_case_has_finite_gradients_at_eps_0():
    head, features = Head(3, 4, 5), torch.randn(40, 3, requires_grad=True)
    z = head(features)
    z.retain_grad()
    ibp_hinge_loss(head, features, z, z.argmax(1), 0.0).backward()
    for tensor in (features, z, *head.parameters()):
        assert tensor.grad is not None
        assert tensor.grad.isfinite().all()


def test_the_hinge_of_the_worst_case_is_the_clipped_hinge_of_a_linear_head():
    """Small weights before tanh and large ones after it make the identity: then t = 2 eps."""
    identity, eps = Head(4, 4, 4).double(), 0.3
    with torch.no_grad():
        identity.hidden.weight.copy_(2e-4 * torch.eye(4))  # divided by the root of 4 when it is used
        identity.output.weight.copy_(2e4 * torch.eye(4))
    features, y = torch.randn(50, 4, dtype=torch.float64), torch.randint(4, (50,))
    z = identity(features)
    torch.testing.assert_close(z, features, rtol=0, atol=1e-6)
    value = ibp_hinge_loss(identity, features, z, y, eps)
    torch.testing.assert_close(value, clipped_hinge_loss(features, y, 2 * eps), rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", ["mnist", "fashion", "mnist-ce", "mnist-mlp"])
def test_pixels_meet_logits_divided_by_std(name):
    """MNIST's t = 0.9 becomes 2.92, and so does eps for the features."""
    recipe = recipes.load(name).override({"width": 8} | ({"head": 6} if name == "mnist-mlp" else {}))
    constants = info(recipe.data)
    objective = Objective(recipe, build_network(recipe, constants)).train()
    state = state_at(recipe, 60, 1)
    x, y = torch.rand(6, 1, 28, 28), torch.arange(6)
    loss, z = objective(x, y, state)
    if recipe.loss == "ibp":
        head, features = objective.network.head, objective.network.features(x, state.p)
        expected = ibp_loss(head, features, z, y, 0.35 / 0.3081, 0.5)
    elif recipe.loss == "hinge":
        threshold = {"mnist": 0.9, "fashion": 0.45}[name] / constants.std
        expected = hinge_loss(z, y, threshold, 0.0 if name == "fashion" else 0.25)
    else:
        expected = clipped_hinge_loss(z, y, 0.9 / 0.3081) + state.loss["ce_weight"] * F.cross_entropy(z, y)
        assert 0.0002 < state.loss["ce_weight"] < 0.05
    torch.testing.assert_close(loss, expected)


@pytest.mark.parametrize("labels", [[0, 4, 4, 1, 3, 0, 2], [3] * 7, []])  # several labels, one label, no image
def test_margin_reach_is_its_definition(labels):
    w = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    half = torch.rand(len(labels), 3, dtype=torch.float64, requires_grad=True)
    y = torch.tensor(labels, dtype=torch.int64)
    expected = torch.einsum("bmh,bh->bm", (w[None] - w[y][:, None]).abs(), half)
    torch.testing.assert_close(margin_reach(w, half, y), expected)
    assert torch.autograd.gradcheck(lambda w, half: margin_reach(w, half, y), (w, half))


def test_the_scale_starts_where_the_recipe_says():
    recipe = recipes.load("mnist-ce").override({"width": 8, "scale_start": 5})
    objective = Objective(recipe, build_network(recipe, info("mnist"))).train()
    state = state_at(recipe, 60, 1)
    x, y = torch.rand(6, 1, 28, 28), torch.arange(6)
    loss, z = objective(x, y, state)
    expected = clipped_hinge_loss(z, y, 0.9 / 0.3081) + state.loss["ce_weight"] * F.cross_entropy(5 * z, y)
    torch.testing.assert_close(loss, expected)
    loss.backward()
    assert objective.loss.scale.grad is not None  # it is learned from there on


BOXES = {"width": 8, "clip": [0.3, 0.7], "per_class": 2, "e4": 10, "box_lr": 0.01, "box_threshold": "0.1"}


@pytest.mark.parametrize("name", ["mnist", "mnist-ce"])
def test_in_the_last_epochs_the_loss_is_that_of_the_worst_case(name):
    """It is larger than the loss of any image of the box, and the network is back in training mode afterwards."""
    recipe = recipes.load(name).override(BOXES)
    objective = Objective(recipe, build_network(recipe, info("mnist"))).train()
    last = state_at(recipe, round(recipe.epochs) - 1, 1)
    assert last.boxes
    assert not state_at(recipe, round(recipe.epochs) - 11, 1).boxes
    x, y = torch.rand(6, 1, 28, 28), torch.arange(6)
    loss, bounds = objective(x, y, last)
    assert objective.network.training
    loss.backward()
    assert all(parameter.grad is not None for parameter in objective.network.parameters())

    network = objective.network.eval()
    for _ in range(20):
        z = network((x + 0.3 * (2 * torch.rand_like(x) - 1).sign()).clamp(0, 1))
        ahead = z - z.gather(1, y[:, None])
        assert (ahead <= bounds - bounds.gather(1, y[:, None]) + 1e-5).all()
        assert objective.loss.of(z, x, y, last) <= loss
    assert torch.equal(worst_logits(network, x, y, 0.0).argmax(1), network(x).argmax(1))
