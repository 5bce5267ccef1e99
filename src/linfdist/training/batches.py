"""The order and augmentation of the data: a resumed run sees the same batches, for they follow from the seed and step.

With fewer visits of some images they follow from what was learned of these, too, which is kept in checkpoints.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from ..data.augment import Augment, draw, send
from ..data.samples import as_pixels
from ..data.warp import Warp
from ..recipes import Recipe
from .distributed import Workers
from .visits import Visits

ORDER, CROPS, WARPS = range(3)  # streams of random numbers


class Batches:
    """Training batches of images (N, C, H, W), uint8 or float32 in [0, 1].

    taken: the numbers of the images to train on; by default all.

    Each epoch is a fresh permutation; the images that do not fill a batch are left out of it. If the recipe wants fewer
    visits of some images, an epoch after e1 has several permutations: see `Visits`. Only the images of one batch are
    ever copied: a data set that is mapped from a file may be larger than the memory.
    """

    def __init__(
        self, images: Tensor, labels: Tensor, recipe: Recipe, workers: Workers, taken: Tensor | None = None
    ) -> None:
        taken = torch.arange(len(images)) if taken is None else taken
        if recipe.batch_size % workers.world:
            raise ValueError(
                f"batch_size={recipe.batch_size} does not split over {workers.world} processes: choose a multiple"
            )
        if recipe.batch_size > len(taken):
            raise ValueError(f"batch_size={recipe.batch_size} is larger than the {len(taken)} training images")
        self.images, self.labels, self.taken, self.recipe, self.workers = images, labels, taken, recipe, workers
        self.augmentation = Augment(recipe.pad, recipe.pad_mode, recipe.flip, recipe.crop, recipe.pad_share)
        self.warp = Warp(recipe.turn, recipe.stretch, recipe.slide, recipe.warp_share)
        self.steps_per_epoch = len(taken) // recipe.batch_size
        self.visits = Visits(len(taken), **_shares(recipe))
        self._epoch = -1  # whose order `visits` has
        self._ready: dict[int, tuple[Tensor, Tensor]] = {}

    def at(self, step: int) -> tuple[Tensor, Tensor]:
        """Return this process's share of batch `step`, on its device: pixels in [0, 1] and labels."""
        ready, self._ready = self._ready, {}
        return ready[step] if step in ready else self._make(step)

    def prepare(self, step: int) -> None:
        """Make a batch before it is asked for: while a GPU computes, the CPU has time for that."""
        if self.visits.chooses and step % self.steps_per_epoch == 0:
            return  # its order follows from leads that are not known yet
        if self.workers.device.type != "cpu":
            self._ready = {step: self._make(step)}

    def _make(self, step: int) -> tuple[Tensor, Tensor]:
        epoch, position = divmod(step, self.steps_per_epoch)
        size, device = self.recipe.batch_size, self.workers.device
        if epoch != self._epoch:
            self._epoch = epoch
            everyone = epoch < self.recipe.e1
            self.visits.begin_epoch(self.steps_per_epoch * size, everyone, _generator(self.recipe.seed, ORDER, epoch))
        mine = slice(self.workers.rank, None, self.workers.world)
        index = self.taken[self.visits.order[position * size : (position + 1) * size][mine]]
        shape = (size, *self.images.shape[1:])  # choices are drawn for the whole batch, of which others have the rest
        choices = draw(self.augmentation, shape, _generator(self.recipe.seed, CROPS, step))[mine]
        images, labels = send(self.images[index], device), send(self.labels[index], device)
        pixels = as_pixels(choices.apply(images))
        if self.warp.changes:
            pixels = self.warp.apply(pixels, self.warp.draw(size, _generator(self.recipe.seed, WARPS, step))[mine])
        return pixels, labels

    def learn(self, step: int, leads: Tensor) -> None:
        """Keep how far this process's images of batch `step` led, in thresholds; all processes hear of all."""
        size = self.recipe.batch_size
        whole = torch.zeros(size, dtype=torch.float32, device=leads.device)
        whole[self.workers.rank :: self.workers.world] = leads
        self.visits.learn(step % self.steps_per_epoch * size, self.workers.sum_tensor(whole).cpu())

    def load_visits(self, tensors: Mapping[str, Tensor], step: int, path: Path) -> None:
        """Resume before batch `step` with what `visits.state_dict` gave; path: where it came from."""
        length = self.steps_per_epoch * self.recipe.batch_size if step else 0
        self.visits.load_state_dict(tensors, length, path)
        if self.visits.chooses:
            self._epoch = -1 if step % self.steps_per_epoch == 0 else step // self.steps_per_epoch


def _shares(recipe: Recipe) -> dict[str, float]:
    """The recipe's shares of visits, without those that its loss has no use for."""
    return {key: getattr(recipe, key) for key in ("safe_share", "lost_share") if key not in recipe.idle()}


def _generator(seed: int, stream: int, counter: int) -> torch.Generator:
    """Return a generator that is determined by (seed, stream, counter)."""
    digest = hashlib.sha256(f"{seed}/{stream}/{counter}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:4], "little"))
