"""torch.compile of what surrounds the distances: a training step is one graph, with the bits of the uncompiled one."""

import dataclasses
import math
import os
import subprocess
import sys

import pytest
import torch

from linfdist import recipes
from linfdist.data import Dataset, Info
from linfdist.ops.backends import BACKENDS
from linfdist.training import Trainer

# torch warns of what its own tracing does to any autograd.Function.
pytestmark = pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
FAST = {
    "mnist": {"width": 12, "depth": 3},  # hinge
    "mnist-mlp": {"width": 12, "depth": 3, "head": 7},  # bounds of a head
}
SLOW = {"mnist-ce": {"width": 12, "depth": 3}, "cifar10-conv-mlp": {"width": 4, "head": 8}}
ONE = "test_a_training_step_is_one_graph"


def gradients(trainer, run, state):
    """The loss of a batch, and all gradients."""
    for parameter in trainer.objective.parameters():
        parameter.grad = None
    loss, _ = run(*trainer.batches.at(0), state)
    loss.backward()
    return [loss.detach(), *(p.grad for p in trainer.objective.parameters() if p.grad is not None)]


@pytest.mark.parametrize("name", [*FAST, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)])
def test_a_training_step_is_one_graph(name):
    torch.compiler.reset()
    images, labels = torch.randint(256, (32, 1, 8, 8), dtype=torch.uint8), torch.arange(32) % 3
    recipe = recipes.load(name).override({"batch_size": 8, "pad": 1, "data": "./mine", **(FAST | SLOW)[name]})
    info = Info("mine", "mine", (1, 8, 8), 3, 32, 0, (0.3,), 0.3)
    trainer = Trainer(recipe, Dataset("mine", images, labels, ("a", "b", "c")), info)
    compiled = torch.compile(trainer.objective, fullgraph=True, backend="aot_eager")
    for p in (8.0, math.inf):
        state = dataclasses.replace(trainer.state, p=p)
        found, right = gradients(trainer, compiled, state), gradients(trainer, trainer.objective, state)
        assert len(right) > 3
        assert all(torch.equal(one, other) for one, other in zip(found, right, strict=True))


@pytest.mark.slow
def test_so_it_is_with_the_triton_backend():
    """In Triton's interpreter, which a process chooses when it begins."""
    if "triton" not in BACKENDS or BACKENDS["triton"].missing():
        pytest.skip("triton is not installed")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"{__file__}::{ONE}[mnist]"]
    env = {**os.environ, "TRITON_INTERPRET": "1", "LINFDIST_BACKEND": "triton"}
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:]
    assert "1 passed" in done.stdout
