"""A small network that has learned the digits, and test images."""

from pathlib import Path
from typing import NamedTuple

import pytest
from torch import Tensor

from linfdist import data, models


class Trained(NamedTuple):
    network: models.PixelNet
    x: Tensor
    y: Tensor


@pytest.fixture(scope="session")
def trained(digits: Path, digits_run: Path) -> Trained:
    network, test = models.load(digits_run), data.load("digits", "test", digits)
    return Trained(network, test.images[:200].float() / 255, test.labels[:200])
