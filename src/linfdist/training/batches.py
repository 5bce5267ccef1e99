"""The order of the data and its augmentation, pure functions of (seed, step): a resumed run sees the same batches."""

import hashlib

import torch
from torch import Tensor

from ..data.augment import Augment, augment
from ..recipes import Recipe
from .distributed import Workers


class Batches:
    """Training batches from memory. Each epoch is a fresh permutation; what does not fill a batch is left out of it."""

    def __init__(self, images: Tensor, labels: Tensor, recipe: Recipe, workers: Workers) -> None:
        if recipe.batch_size % workers.world:
            raise ValueError(
                f"batch_size={recipe.batch_size} does not split over {workers.world} processes: choose a multiple"
            )
        if recipe.batch_size > len(images):
            raise ValueError(f"batch_size={recipe.batch_size} is larger than the {len(images)} training images")
        self.images, self.labels, self.recipe, self.workers = images, labels, recipe, workers
        self.augmentation = Augment(pad=recipe.pad, pad_mode=recipe.pad_mode, flip=recipe.flip, crop=recipe.crop)
        self.steps_per_epoch = len(images) // recipe.batch_size
        self._epoch, self._order = -1, torch.empty(0, dtype=torch.int64)

    def at(self, step: int) -> tuple[Tensor, Tensor]:
        """This process's share of batch `step`: pixels in [0, 1] and labels."""
        epoch, position = divmod(step, self.steps_per_epoch)
        if epoch != self._epoch:
            self._epoch = epoch
            self._order = torch.randperm(len(self.images), generator=_generator(self.recipe.seed, 0, epoch))
        size = self.recipe.batch_size
        index = self._order[position * size : (position + 1) * size]
        images = augment(self.images[index], self.augmentation, _generator(self.recipe.seed, 1, step))
        mine = slice(self.workers.rank, None, self.workers.world)
        device = self.workers.device
        return images[mine].to(device).float().div_(255), self.labels[index][mine].to(device)


def _generator(seed: int, stream: int, counter: int) -> torch.Generator:
    """A generator of its own for every (seed, stream, counter)."""
    digest = hashlib.sha256(f"{seed}/{stream}/{counter}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:4], "little"))
