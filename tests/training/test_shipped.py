"""Every recipe that comes with the package builds and learns for two steps, on noise of the right shape."""

import numpy as np
import pytest
import torch
from PIL import Image

from linfdist import models, recipes
from linfdist.training import train

from .runs import FINISHED, files, metrics

SHAPES = {"mnist": (28, 28), "fashion": (28, 28), "cifar10": (32, 32, 3), "tinyimagenet": (64, 64, 3), "digits": (8, 8)}


@pytest.fixture(scope="session")
def noise(tmp_path_factory):
    """Folders of images: 24 to train on, in three classes."""
    root = tmp_path_factory.mktemp("noise")
    generator = np.random.default_rng(0)
    for name, shape in SHAPES.items():
        for split, label, k in ((split, label, k) for split in ("train", "test") for label in "abc" for k in range(8)):
            path = root / name / split / label / f"{k}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(generator.integers(0, 256, shape, dtype=np.uint8)).save(path)
    return root


def test_images_are_held_out_of_every_class(noise, tmp_path):
    """Folders are sorted by class."""
    seen = []
    changes = {"data": str(noise / "digits"), "width": 3, "batch_size": 7, "epochs": 1, "holdout": 3}
    recipe = recipes.load("digits-quick").override(changes)
    train(recipe, tmp_path / "run", quiet=True, evaluate=lambda network, images, labels: seen.append(labels) or {})
    assert seen[0].tolist() == [0, 1, 2]
    assert metrics(tmp_path / "run")[0]["step"] == 3  # of 7 images each: 21 are left


SMALL = {"dist_net": {}, "conv_dist_net": {"dense": 5}}  # what is above the layers of `width`, if no head is


@pytest.mark.parametrize("name", recipes.names())
def test_two_steps(name, noise, tmp_path):
    recipe = recipes.load(name)
    small = {"data": str(noise / recipe.data), "width": 3, "batch_size": 12, "epochs": 1}
    recipe = recipe.override(small | SMALL.get(recipe.model, {"head": 5}))
    out = train(recipe, tmp_path / "run", quiet=True)
    assert files(out) == FINISHED
    (row,) = metrics(out)
    assert row["step"] == 2
    network = models.load(out)
    assert all(tensor.isfinite().all() for tensor in network.state_dict().values())
    assert network(torch.rand(2, *network.shape)).shape == (2, 3)
    learned = dict(network.named_parameters())
    torch.manual_seed(recipe.seed)
    fresh = dict(models.from_config(network.config).named_parameters())
    assert all(not torch.equal(tensor, fresh[name]) for name, tensor in learned.items())
