"""The digits, and a small network that has learned them."""

from pathlib import Path
from typing import NamedTuple

import pytest
from torch import Tensor

from linfdist import data, models, recipes
from linfdist.training import train


class Trained(NamedTuple):
    network: models.PixelNet
    x: Tensor
    y: Tensor


def learned(folder: Path, out: Path, **changes: object) -> Trained:
    recipe = recipes.load("digits-quick").override({"width": 48, "epochs": 10, **changes})
    network = models.load(train(recipe, out, data_dir=folder, quiet=True))
    test = data.load("digits", "test", folder)
    return Trained(network, test.images[:200].float() / 255, test.labels[:200])


@pytest.fixture(scope="session")
def trained(digits: Path, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return learned(digits, tmp_path_factory.mktemp("runs") / "plain")
