"""The digits, and a small network that has learned some of them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from linfdist import data, recipes
from linfdist.training import train


@pytest.fixture(scope="session", autouse=True)
def _small_galleries() -> Iterator[None]:
    """One round of attacks shows all but how small a perturbation can be; that has tests of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("linfdist.evaluate.gallery.ROUNDS", 1)
        yield


@pytest.fixture(scope="session")
def run(digits: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    recipe = recipes.load("digits-quick").override({"width": 64, "epochs": 8})
    return train(recipe, tmp_path_factory.mktemp("runs") / "run", data_dir=digits, quiet=True)


@pytest.fixture(scope="session")
def test_set(digits: Path) -> data.Dataset:
    return data.load("digits", "test", digits)
