"""Adam with weight decay: eq. (6) in float64, and native against plain torch."""

import math

import pytest
import torch
from torch import nn

from linfdist.ops.adam import adam_step, decay_direction
from linfdist.ops.backends import native
from linfdist.training.optim import DistAdam

POWERS = [2, 3, 8, 9.5, 12, 50, 300, 1000, math.inf]
SHAPES = [(1, 1), (3, 7), (5, 64), (2, 129), (67, 33), (4, 3, 3, 3), (5,), ()]
needs_native = pytest.mark.skipif(bool(native.missing()), reason=f"native: {native.missing()}")


def direction(row, p):
    """Eq. (6) of one neuron, number by number."""
    norm = max(map(abs, row)) if math.isinf(p) else sum(abs(w) ** p for w in row) ** (1 / p)
    if math.isinf(p):
        first = [abs(w) for w in row].index(norm)
        return [w if i == first else 0.0 for i, w in enumerate(row)]
    return [(abs(w) / norm) ** (p - 2) * w if norm else 0.0 for w in row]


@pytest.mark.parametrize("p", POWERS)
def test_decay_is_eq_6(p):
    w = torch.rand(5, 4, dtype=torch.float64) * 2 - 1  # powers of larger numbers overflow here, not there
    w[3] = 0  # a neuron without weights
    expected = torch.tensor([direction(row, p) for row in w.tolist()], dtype=torch.float64)
    torch.testing.assert_close(decay_direction(w, p), expected)
    images = w.view(5, 1, 2, 2)  # a convolution decays per output channel
    torch.testing.assert_close(decay_direction(images, p), expected.view(5, 1, 2, 2))


def test_large_weights_do_not_overflow():
    w = torch.tensor([[1e30, -1e30, 1e20]], dtype=torch.float64)
    half = 2 ** (-998 / 1000)
    torch.testing.assert_close(decay_direction(w, 1000) / 1e30, torch.tensor([[half, -half, 0]]).double())


def moments(shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    w, grad, mean, square = (torch.randn(shape, generator=generator) for _ in range(4))
    if len(shape) > 1:
        w[0] = 0
        grad[-1] = 0
    return w, grad, mean, square.square()


@needs_native
@pytest.mark.parametrize("p", POWERS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_native_and_torch_agree(monkeypatch, shape, p):
    if len(shape) < 2 and p != 2:
        p = 2  # biases decay conventionally
    results = {}
    for name in ("native", "reference"):
        monkeypatch.setenv("LINFDIST_BACKEND", name)
        w, grad, mean, square = moments(shape)
        for step in (1, 2, 3):
            settings = {"lr": 0.3, "betas": (0.9, 0.99), "eps": 1e-10, "decay": 0.5, "p": p, "step": step}
            adam_step(w, grad, mean, square, **settings)
        results[name] = (w, mean, square)
    for ours, plain in zip(*results.values(), strict=True):
        assert ours.isfinite().all()
        torch.testing.assert_close(ours, plain, rtol=2e-5, atol=2e-5)


@needs_native
@pytest.mark.parametrize("p", POWERS)
def test_native_decay_is_eq_6(monkeypatch, p):
    """Without a gradient nothing but the decay moves; here by half the weight at most."""
    monkeypatch.setenv("LINFDIST_BACKEND", "native")
    w = torch.randn(37, 101)
    expected = w.double() - 0.5 * decay_direction(w.double(), p)
    zero = torch.zeros_like(w)
    adam_step(w, zero, zero.clone(), zero.clone(), lr=1.0, betas=(0.9, 0.99), eps=1e-10, decay=0.5, p=p, step=1)
    torch.testing.assert_close(w.double(), expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("decay", [0.0, 0.01])
def test_without_decay_it_is_adam(backend, decay):
    """torch's own, in float64: with p = 2, decoupled decay (AdamW)."""
    w = torch.randn(6, 9, dtype=torch.float64)
    reference = nn.Parameter(w.clone())
    optimiser = torch.optim.AdamW([reference], lr=0.05, betas=(0.9, 0.99), eps=1e-10, weight_decay=decay)
    for dtype in (torch.float32, torch.float64):
        ours = w.to(dtype, copy=True)
        mean, square = torch.zeros_like(ours), torch.zeros_like(ours)
        reference.data.copy_(w)
        optimiser.state.clear()
        for step in range(1, 6):
            reference.grad = torch.randn(6, 9, dtype=torch.float64)
            optimiser.step()
            adam_step(
                ours, reference.grad.to(dtype), mean, square,
                lr=0.05, betas=(0.9, 0.99), eps=1e-10, decay=decay, p=2.0, step=step,
            )  # fmt: skip
        tolerance = 1e-12 if dtype == torch.float64 else 2e-6
        torch.testing.assert_close(ours.double(), reference.detach(), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("p", [2.0, 8.0, 11.0, math.inf])
def test_any_memory_layout_and_no_weights_at_all(backend, p):
    settings = {"lr": 0.3, "betas": (0.9, 0.99), "eps": 1e-10, "decay": 0.5, "p": p, "step": 1}
    plain = moments((4, 3, 5, 2))
    last = [tensor.contiguous(memory_format=torch.channels_last) for tensor in plain]
    for tensors in (plain, last):
        adam_step(*tensors, **settings)
    for expected, actual in zip(plain, last, strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-6, atol=1e-6)
        assert actual.is_contiguous(memory_format=torch.channels_last)
    for shape in ((0,), (0, 3), (3, 0)):
        adam_step(*(torch.zeros(shape) for _ in range(4)), **settings)


def test_a_beta_near_1_keeps_its_digits(backend):
    """1 - 0.99999 formed in float32 is wrong by 1.4e-3 of itself, and with it the second moment."""
    beta, grad = 0.99999, torch.rand(3, 70) + 0.5
    w, mean, square = (torch.zeros(3, 70) for _ in range(3))
    for step in range(1, 21):
        adam_step(w, grad, mean, square, lr=0.1, betas=(beta, beta), eps=1e-10, decay=0.0, p=2.0, step=step)
    expected = (1 - beta**20) * grad.double() ** 2
    torch.testing.assert_close(square.double(), expected, rtol=1e-5, atol=0)
    torch.testing.assert_close(mean.double(), (1 - beta**20) * grad.double(), rtol=1e-5, atol=0)


@needs_native
@pytest.mark.parametrize("p", [9, 11, 18, 22, 30, 33])
def test_native_decay_at_other_whole_powers(monkeypatch, p):
    test_native_decay_is_eq_6(monkeypatch, p)


def optimiser(parameters, **changes):
    settings = {"lp": {"dist"}, "lr_factors": {"scale": 0.2}, "beta1": 0.9, "beta2": 0.99, "eps": 1e-10}
    return DistAdam(parameters.items(), **{**settings, "weight_decay": 0.01, **changes})


@pytest.mark.parametrize("p", [1.5, 8.0, math.inf])
def test_each_parameter_has_its_own_decay_and_rate(p):
    parameters = {
        "dist": nn.Parameter(torch.randn(3, 5)),
        "head": nn.Parameter(torch.randn(3, 5)),
        "bias": nn.Parameter(torch.randn(5)),
        "scale": nn.Parameter(torch.tensor(1.0)),
        "unused": nn.Parameter(torch.ones(2)),
    }
    before = {name: parameter.detach().clone() for name, parameter in parameters.items()}
    for name, parameter in parameters.items():
        parameter.grad = None if name == "unused" else torch.ones_like(parameter)
    optimiser(parameters).step(0.1, p)
    adam = 0.1  # the first step of Adam is lr times the sign
    decay = {
        "dist": decay_direction(before["dist"], max(p, 2.0)), "head": before["head"], "bias": before["bias"],
    }  # fmt: skip
    for name, direction in decay.items():
        torch.testing.assert_close(parameters[name].detach(), before[name] - 0.1 * 0.01 * direction - adam)
    assert parameters["scale"].item() == pytest.approx(1 - 0.2 * adam)  # a fifth of the rate, and no decay
    assert torch.equal(parameters["unused"], before["unused"])


def test_state_survives_and_is_checked():
    parameters = {"dist": nn.Parameter(torch.randn(3, 5)), "scale": nn.Parameter(torch.tensor(1.0))}
    first = optimiser(parameters)
    for parameter in parameters.values():
        parameter.grad = torch.ones_like(parameter)
    first.step(0.1, 8.0)
    state = {name: tensor.clone() for name, tensor in first.state_dict().items()}
    assert sorted(state) == ["dist.mean", "dist.square", "scale.mean", "scale.square"]
    second = optimiser(parameters)
    second.load_state_dict(state, 1)
    assert second.steps == 1
    assert all(torch.equal(tensor, state[name]) for name, tensor in second.state_dict().items())
    with pytest.raises(ValueError, match=r"scale\.mean"):
        second.load_state_dict({name: tensor for name, tensor in state.items() if name != "scale.mean"}, 1)
    with pytest.raises(ValueError, match=r"dist\.mean is torch\.float32 \(5,\), expected"):
        second.load_state_dict(state | {"dist.mean": torch.zeros(5)}, 1)
