"""A network that has learned something, and its frozen form."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from linfdist import data, models, recipes
from linfdist.certificates import exact
from linfdist.training import train


@pytest.fixture(scope="session")
def trained(digits, tmp_path_factory) -> SimpleNamespace:
    """run: its folder; network; frozen; file: the frozen network in a file; images, labels: the test images."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    run = tmp_path_factory.mktemp("exact") / "run"
    recipe = recipes.override(recipes.load("digits-quick"), ["width=64", "epochs=8"])
    train(recipe, run, data_dir=digits, quiet=True)
    network = models.load(run)
    frozen = exact.freeze(network)
    file = Path(run) / "frozen.safetensors"
    exact.save(frozen, file)
    test = data.load("digits", split="test", data_dir=digits)
    return SimpleNamespace(
        run=run, network=network, frozen=frozen, file=file, images=test.images, labels=test.labels, data_dir=digits
    )
