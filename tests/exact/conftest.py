"""Networks that have learned something, and their frozen forms."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from linfdist import data, exact, models, recipes
from linfdist.training import train


@pytest.fixture(scope="session")
def trained(digits, digits_run, tmp_path_factory) -> SimpleNamespace:
    """run: its folder; network; frozen; file: the frozen network in a file; images, labels: the test images."""
    return frozen(digits, Path(shutil.copytree(digits_run, tmp_path_factory.mktemp("exact") / "run")))


@pytest.fixture(scope="session")
def trained_mlp(digits, tmp_path_factory) -> SimpleNamespace:
    """The same with a head."""
    without = [f"{name}=none" for name in ("threshold", "ce_start", "ce_end")]
    with_head = ["model=dist_net_mlp", "head=16", "loss=ibp", "eps_train=0.1", "kappa=0.5", *without]
    return made(digits, tmp_path_factory.mktemp("exact_mlp") / "run", ["width=48", "depth=2", "epochs=8", *with_head])


def made(digits: Path, run: Path, changes: list[str]) -> SimpleNamespace:
    recipe = recipes.override(recipes.load("digits-quick"), changes)
    return frozen(digits, train(recipe, run, data_dir=digits, quiet=True))


def frozen(digits: Path, run: Path) -> SimpleNamespace:
    network = models.load(run)
    exact_network = exact.freeze(network)
    file = run / "frozen.safetensors"
    exact.save(exact_network, file)
    test = data.load("digits", split="test", data_dir=digits)
    return SimpleNamespace(
        run=run, network=network, frozen=exact_network, file=file, images=test.images, labels=test.labels,
        data_dir=digits,
    )  # fmt: skip
