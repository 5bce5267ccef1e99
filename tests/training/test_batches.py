"""Batches: what follows from the seed and the step alone."""

import torch

from linfdist import recipes
from linfdist.training.batches import Batches
from linfdist.training.distributed import Workers


def batches(workers=None, **changes):
    images = torch.randint(256, (64, 1, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(3))
    recipe = recipes.load("digits-quick").override({"batch_size": 8, **changes})
    return Batches(images, torch.arange(64), recipe, workers or Workers())


def test_networks_with_mirror_pairs_see_no_flips():
    crops = {"pad": 1, "pad_share": 0.5}
    plain, idle = batches(**crops), batches(**crops, flip=True).recipe
    paired = batches(**crops, mirror_pairs=True)
    paired_too = Batches(
        plain.images, plain.labels, idle.model_copy(update={"mirror_pairs": True}), Workers()
    )  # as one that inherits flip = true
    for step in range(3):
        assert torch.equal(paired.at(step)[0], plain.at(step)[0])
        assert torch.equal(paired_too.at(step)[0], plain.at(step)[0])
