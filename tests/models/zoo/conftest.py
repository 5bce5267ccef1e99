"""A zoo of one network, made as all others are: trained on the digits, rounded, measured."""

from pathlib import Path

import pytest

from linfdist import recipes
from linfdist.evaluation import watch
from linfdist.training import train
from tools.zoo_add import add


@pytest.fixture(scope="session")
def run(digits: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    recipe = recipes.load("digits-quick").override({"width": 32, "epochs": 8})
    return train(
        recipe, tmp_path_factory.mktemp("runs") / "run", data_dir=digits, quiet=True,
        evaluate=watch(recipe),
    )  # fmt: skip


@pytest.fixture(scope="session")
def zoo(run: Path, digits: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with digits-0.1; its curves are in `results` beside the files."""
    folder = tmp_path_factory.mktemp("zoo")
    add(run, "digits-0.1", folder, folder / "results", digits)
    return folder
