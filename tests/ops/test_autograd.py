"""The ops inside torch's training machinery: grad modes, autocast, checkpointing, copies, hooks."""

import copy
import io
import math
import pickle

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import linfdist as ld
from linfdist.ops.backends import native
from linfdist.ops.geometry import POINT

from .layers import TwoLayers, gradients, images

POWERS = [8.0, math.inf]


@pytest.mark.parametrize("p", POWERS)
@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_without_gradients(backend, context, p):
    model, x = TwoLayers(), images()
    with context():
        y = model(x, p)
    assert not y.requires_grad
    assert torch.equal(y, model(x, p))


@pytest.mark.parametrize("p", POWERS)
def test_inputs_made_in_inference_mode(p):
    with torch.inference_mode():
        x = images()
    model = TwoLayers()
    with torch.no_grad():
        assert torch.equal(model(x, p), model(x.clone(), p))


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("p", POWERS)
def test_autocast_computes_in_float32(backend, p, half):
    x, w = torch.rand(40, 31).to(half).requires_grad_(), torch.randn(7, 31, requires_grad=True)
    with torch.autocast("cpu", dtype=half):
        y = ld.dist(x, w, p)
        near, far = ld.dist_box(x, x, w)
        z = ld.dist_conv2d(x[..., None, None], w.to(half)[..., None, None], p)
    assert y.dtype == near.dtype == z.dtype == torch.float32
    assert torch.equal(y, ld.dist(x.float(), w, p))
    assert torch.equal(near, far)
    y.sum().backward()
    assert x.grad.dtype == half
    assert w.grad.dtype == torch.float32


def test_autocast_leaves_float64_alone():
    x, w = torch.rand(4, 7).double(), torch.rand(3, 7).double()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert ld.dist(x, w).dtype == torch.float64


def test_autocast_after_a_matrix_product():
    """The usual case: what comes in is bfloat16 without the user having said so."""
    linear, w = torch.nn.Linear(7, 5), torch.randn(3, 5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        h = linear(torch.rand(4, 7))
        y = ld.dist(h, w, 8.0)
    assert h.dtype == torch.bfloat16
    assert y.dtype == torch.float32


@pytest.mark.parametrize("p", POWERS)
@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointing(p, reentrant):
    model, x = TwoLayers(), images().requires_grad_()
    y = checkpoint(model, x, p, use_reentrant=reentrant)
    y.square().sum().backward()
    kept = [parameter.grad for parameter in model.parameters()]
    for actual, expected in zip(kept, gradients(model, model(x, p)), strict=True):
        assert torch.equal(actual, expected)


@pytest.mark.parametrize("p", POWERS)
def test_backward_twice_through_one_graph(p):
    model, x = TwoLayers(), images()
    y = model(x, p).sum()
    first = torch.autograd.grad(y, model.weights, retain_graph=True)[0]
    assert torch.equal(torch.autograd.grad(y, model.weights)[0], first)


@pytest.mark.parametrize("p", POWERS)
def test_an_input_changed_in_place_before_the_backward(p):
    """At finite p the inputs are saved, so torch must notice; at inf they are not needed."""
    x, w = torch.rand(5, 7), torch.randn(4, 7, requires_grad=True)
    expected = torch.autograd.grad(ld.dist(x, w, p).sum(), w)[0]
    y = ld.dist(x, w, p).sum()
    x.add_(1)
    if p == math.inf:
        assert torch.equal(torch.autograd.grad(y, w)[0], expected)
    else:
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.backward()


def test_copies_and_pickles_of_modules():
    model, x = TwoLayers(), images()
    model(x).sum().backward()
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    fresh = TwoLayers()
    fresh.load_state_dict(torch.load(file, weights_only=True))
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), fresh):
        assert torch.equal(other(x), model(x))


@pytest.mark.compiled
@pytest.mark.parametrize("p", POWERS)
def test_a_few_steps_of_training_bring_the_loss_down(backend, p):
    """The gradients point the right way through two layers."""
    torch.manual_seed(3)
    x, target = torch.rand(16, 2, 5, 4), 2 * torch.rand(16, 3)
    model = TwoLayers()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    losses = []
    for _ in range(40):
        loss = (model(x, p) - target).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.2 * losses[0]


def test_the_default_device_is_not_used():
    """p becomes a tensor inside: it must not follow a user's default device."""
    x, w = torch.rand(2, 3), torch.rand(4, 3)
    with torch.device("meta"):
        y = ld.dist(x, w, 3.0)
    assert y.device.type == "cpu"
    assert torch.equal(y, ld.dist(x, w, 3.0))


@pytest.mark.parametrize("p", [8.0, 60.0, math.inf])
def test_the_first_layer_is_not_asked_for_a_gradient_of_its_input(p, monkeypatch):
    asked = []
    for name in ("inf_dist_backward", "p_dist_backward"):
        original = getattr(native, name)

        def call(*args, original=original):
            asked.append(args[-2:])
            return original(*args)

        monkeypatch.setattr(native, name, call)
    network = ld.models.DistNet((1, 4, 4), classes=3, width=8, depth=3, mean=[0.5], std=0.5, pool=[1, 2]).train()
    network(torch.rand(5, 1, 4, 4), p).sum().backward()
    assert asked == [(True, True), (True, True), (False, True)]
    assert all(parameter.grad is not None for parameter in network.parameters())


@pytest.mark.parametrize("p", [3.0, 8.0, 16.0, 24.0, 60.0, 300.0])
def test_a_gradient_alone_has_the_bits_of_both_and_rows_without_one_change_nothing(p):
    x, w, g = 3 * torch.randn(67, 41)[:, :, None, None], torch.randn(37, 41)[:, :, None, None], torch.randn(67, 37)
    g[3:40] = 0  # among them 16 rows that are asked for together
    y = native.p_dist(x, w, p, POINT)
    both = native.p_dist_backward(g[:, :, None, None], x, w, y, p, POINT, True, True)
    dx, _ = native.p_dist_backward(g[:, :, None, None], x, w, y, p, POINT, True, False)
    _, dw = native.p_dist_backward(g[:, :, None, None], x, w, y, p, POINT, False, True)
    assert torch.equal(dx, both[0])
    assert not dx[3:40].any()
    assert torch.equal(dw, both[1])
