"""The paper's largest plain network fits a laptop."""

import sys

import pytest

from .runs import start

PROGRAM = """
import torch
from linfdist import recipes
from linfdist.data import Dataset, info
from linfdist.training import Trainer

recipe = recipes.load("mnist")
assert (recipe.width, recipe.batch_size) == (5120, 512)
images = torch.randint(256, (512, 1, 28, 28), dtype=torch.uint8)
trainer = Trainer(recipe, Dataset("noise", images, torch.arange(512) % 10, ()), info("mnist"))
assert trainer.state.p == 8
trainer.step()
print(int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]) * 1024)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak of resident memory from /proc")
def test_width_5120_at_batch_512_takes_less_than_8_gigabytes():
    process = start("-c", PROGRAM)
    output, errors = process.communicate(timeout=280)
    assert process.returncode == 0, errors
    assert int(output) < 8e9
