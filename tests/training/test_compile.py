"""torch.compile of what surrounds the distances: a training step is one graph, with the bits of the uncompiled one."""

import dataclasses
import math

import pytest
import torch

from linfdist import recipes
from linfdist.data import Dataset, Info
from linfdist.training import Trainer

# torch warns of what its own tracing does to any autograd.Function.
pytestmark = pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
WIDTHS = {
    "mnist": {"width": 12, "depth": 3},  # hinge
    "mnist-mlp": {"width": 12, "depth": 3, "head": 7},  # bounds of a head
    "mnist-ce": {"width": 12, "depth": 3},  # a learned scale
    "cifar10-conv-mlp": {"width": 4, "head": 8},
}
FAST = ("mnist", "mnist-mlp")


def gradients(trainer, run, state):
    """The loss of a batch, and all gradients."""
    for parameter in trainer.objective.parameters():
        parameter.grad = None
    loss, _ = run(*trainer.batches.at(0), state)
    loss.backward()
    return [loss.detach(), *(p.grad for p in trainer.objective.parameters() if p.grad is not None)]


@pytest.mark.parametrize(
    "name", [*FAST, *(pytest.param(name, marks=pytest.mark.slow) for name in WIDTHS if name not in FAST)]
)
def test_a_training_step_is_one_graph(name):
    torch.compiler.reset()
    images, labels = torch.randint(256, (32, 1, 8, 8), dtype=torch.uint8), torch.arange(32) % 3
    recipe = recipes.load(name).override({"batch_size": 8, "pad": 1, "data": "./mine", **WIDTHS[name]})
    info = Info("mine", "mine", (1, 8, 8), 3, 32, 0, (0.3,), 0.3)
    trainer = Trainer(recipe, Dataset("mine", images, labels, ("a", "b", "c")), info)
    compiled = torch.compile(trainer.objective, fullgraph=True, backend="aot_eager")
    for p in (8.0, math.inf):
        state = dataclasses.replace(trainer.state, p=p)
        found, right = gradients(trainer, compiled, state), gradients(trainer, trainer.objective, state)
        assert len(right) > 3
        assert all(torch.equal(one, other) for one, other in zip(found, right, strict=True))
