"""Adam with weight decay: the engine's bits where no power is taken, plain torch within a tolerance."""

import math

import pytest
import torch

from linfdist.ops.adam import adam_step, decay_direction
from linfdist.ops.backends import native

from ..training.test_adam import moments

SETTINGS = {"lr": 0.3, "betas": (0.9, 0.99), "eps": 1e-10}


def steps(backend, monkeypatch, shape, decay, p):
    monkeypatch.setenv("LINFDIST_BACKEND", backend)
    w, grad, mean, square = moments(shape)
    for step in (1, 2, 3):
        adam_step(w, grad, mean, square, **SETTINGS, decay=decay, p=p, step=step)
    return w, mean, square


@pytest.mark.skipif(bool(native.missing()), reason=f"native: {native.missing()}")
@pytest.mark.parametrize(("decay", "p"), [(0.0, 8.0), (0.5, 2.0), (0.5, math.inf)])
@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (2, 1500), (4, 3, 3, 3), (5,), ()], ids=str)
def test_the_engines_bits(monkeypatch, shape, decay, p):
    p = p if len(shape) > 1 else 2.0  # biases decay conventionally
    for ours, engine in zip(
        steps("triton", monkeypatch, shape, decay, p), steps("native", monkeypatch, shape, decay, p), strict=True
    ):
        assert torch.equal(ours, engine)


@pytest.mark.parametrize("p", [3.0, 8.0, 9.5, 1000.0])
def test_plain_torch_within_its_tolerance(monkeypatch, p):
    for ours, plain in zip(
        steps("triton", monkeypatch, (3, 37), 0.5, p), steps("reference", monkeypatch, (3, 37), 0.5, p), strict=True
    ):
        assert ours.isfinite().all()
        torch.testing.assert_close(ours, plain, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("p", [2.5, 8.0, 50.0, 300.0, 1000.0, math.inf])
def test_decay_is_eq_6(p):
    """Without a gradient nothing but the decay moves; rows of several blocks, tiny and huge weights."""
    w = torch.randn(2, 1100) * torch.tensor([[1e-30], [1e30]])
    w[:, 1] = w[:, 0]
    expected = w.double() - 0.5 * decay_direction(w.double(), p)
    zero = torch.zeros_like(w)
    adam_step(w, zero, zero.clone(), zero.clone(), lr=1.0, betas=(0.9, 0.99), eps=1e-10, decay=0.5, p=p, step=1)
    assert ((w - expected).abs() <= 2**-17 * expected.abs()).all()


def test_no_weights_at_all():
    for shape in ((0,), (0, 3), (3, 0)):
        adam_step(*(torch.zeros(shape) for _ in range(4)), **SETTINGS, decay=0.5, p=8.0, step=1)
