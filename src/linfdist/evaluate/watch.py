"""Look at a network during its training."""

from collections.abc import Callable

import torch
from torch import Tensor

from ..certificates import certify, on_device
from ..certificates.checks import PROVED
from ..models import PixelNet
from ..recipes import Recipe

_BATCH = 512


def watch(recipe: Recipe) -> Callable[[PixelNet, Tensor, Tensor], dict[str, float]]:
    """Make the function that `training.train` calls after every epoch of this recipe.

    It returns clean and certified accuracy in percent, of images uint8 (N, C, H, W). The certificate is the cheapest
    one that tells how far the training is: the margin; or the box, if the recipe trains on boxes, or clips pixels,
    which only the box gains from.
    """
    method = "box" if recipe.e4 or recipe.clip else "margin"

    @torch.no_grad()
    def look(network: PixelNet, images: Tensor, labels: Tensor) -> dict[str, float]:
        if images.device.type not in PROVED:
            network, images, labels = on_device(network, "cpu"), images.cpu(), labels.cpu()
        clean = certified = 0
        for start in range(0, len(images), _BATCH):
            x, y = network.from_bytes(images[start : start + _BATCH]), labels[start : start + _BATCH]
            proof = certify(network, x, recipe.eps, y, method=method, radii=False)
            assert proof.certified is not None  # as eps was given
            clean += int((proof.prediction == y).sum())
            certified += int(proof.certified.sum())
        return {"clean": 100 * clean / len(images), "certified": 100 * certified / len(images)}

    return look
