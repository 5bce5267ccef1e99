"""The digits, and a small network that has learned some of them."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from linfdist import data, models
from linfdist.evaluation import evaluate

SETTINGS = {"eps": "0.1", "attacks": ("pgd",), "batch": 40, "limit": 150}  # four batches, the last one of 30


@pytest.fixture(scope="session", autouse=True)
def _small_galleries() -> Iterator[None]:
    """One round of attacks shows all but how small a perturbation can be; that has tests of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("linfdist.evaluation.gallery.ROUNDS", 1)
        yield


@pytest.fixture(scope="session")
def run(digits_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(shutil.copytree(digits_run, tmp_path_factory.mktemp("runs") / "run"))


@pytest.fixture(scope="session")
def test_set(digits: Path) -> data.Dataset:
    return data.load("digits", "test", digits)


@pytest.fixture(scope="session")
def call(run, test_set):
    network = models.load(run)

    def call(out, **changes):
        options = {**SETTINGS, **changes}
        return evaluate(network, test_set, options.pop("eps"), out, run / "model.safetensors", **options)

    return call


@pytest.fixture(scope="session")
def whole(call, tmp_path_factory):
    """In one go."""
    out = tmp_path_factory.mktemp("whole")
    result = call(out)
    assert not result.before
    assert not result.waiting
    return out
