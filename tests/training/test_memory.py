"""The paper's largest plain network fits a laptop."""

import sys

import pytest

from .runs import start

PROGRAM = """
import torch
from linfdist import recipes
from linfdist.data import info
from linfdist.training.objective import Objective, build_network
from linfdist.training.optim import DistAdam
from linfdist.training.schedule import state_at

recipe = recipes.load("mnist")
assert (recipe.width, recipe.batch_size) == (5120, 512)
objective = Objective(recipe, build_network(recipe, info("mnist"))).train()
optimiser = DistAdam(
    objective.named_parameters(), objective.dist_weights(), {}, recipe.beta1, recipe.beta2, recipe.adam_eps, 0.005
)
state = state_at(recipe, 0, 1)
assert state.p == 8
loss, _ = objective(torch.rand(512, 1, 28, 28), torch.randint(10, (512,)), state)
loss.backward()
optimiser.step(state.lr, state.p)
print(int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]) * 1024)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak of resident memory from /proc")
def test_width_5120_at_batch_512_takes_less_than_8_gigabytes():
    process = start("-c", PROGRAM)
    output, errors = process.communicate(timeout=280)
    assert process.returncode == 0, errors
    assert int(output) < 8e9
