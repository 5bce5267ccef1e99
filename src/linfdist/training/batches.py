"""The order and augmentation of the data, which follow from seed and step: a resumed run sees the same batches.

If some images are drawn less often, the order follows from their margins, too, which checkpoints hold.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from ..data.augmentation import Augment, Warp, draw, send
from ..data.samples import as_pixels
from ..recipes import Recipe
from .distributed import Workers

ORDER, CROPS, WARPS = range(3)  # streams of random numbers
SAFE = 1.2  # thresholds: beyond this margin the hinge has zero gradient, with some room to spare
LOST = -0.5  # thresholds: below this margin the clipped hinge has zero gradient, too


class Sampler:
    """The order of the images of an epoch; images whose loss has no gradient may be drawn less often.

    safe_share, lost_share: the probability that a pass over the images draws one whose margin was beyond SAFE, or below
    LOST, when it was last seen; all others are always drawn. An epoch has as many draws as there are images, so it has
    several passes if some are left out.

    counts: (count,) float64, the weight of each image. An epoch then draws it in proportion to its weight, rounded down
    or up at random, so that the mean loss is the weighted one. Shares must then be 1.
    """

    def __init__(
        self, count: int, safe_share: float = 1.0, lost_share: float = 1.0, counts: Tensor | None = None
    ) -> None:
        if counts is not None and (safe_share < 1 or lost_share < 1):
            raise ValueError(
                f"safe_share = {safe_share}, lost_share = {lost_share}: must be 1 if images "
                "have weights, which say how often each is drawn"
            )
        self.count, self.safe_share, self.lost_share, self.counts = count, safe_share, lost_share, counts
        self.selective = safe_share < 1 or lost_share < 1
        self.margins = torch.full((count,), 0.5, dtype=torch.float32)  # not seen yet: neither safe nor lost
        self.order = torch.empty(0, dtype=torch.int64)  # of the epoch that goes on

    def begin_epoch(self, length: int, all_images: bool, generator: torch.Generator) -> None:
        """Draw the next `length` images: fresh permutations one after the other, without those that are left out."""
        if self.counts is not None:
            self.order = _by_count(self.counts, length, generator)
            return
        share = torch.ones(self.count, dtype=torch.float32)
        share[self.margins >= SAFE] = self.safe_share
        share[self.margins <= LOST] = self.lost_share
        passes, found = [], 0
        while found < length:
            drawn = torch.randperm(self.count, generator=generator)
            if self.selective and not all_images:
                drawn = drawn[torch.rand(self.count, generator=generator, dtype=torch.float32) < share[drawn]]
            passes.append(drawn)
            found += len(drawn)
        self.order = torch.cat(passes)[:length]

    def record(self, first: int, margins: Tensor) -> None:
        """Keep the margins, in units of the threshold, of images of the order, beginning with number `first`."""
        order = self.order[first : first + len(margins)]
        self.margins.numpy()[order.numpy()] = margins.numpy()  # NumPy promises that of two draws the last one counts

    def state_dict(self) -> dict[str, Tensor]:
        """Return the tensors that a resumed training needs: none if the order follows from the seed alone."""
        return {"margins": self.margins, "order": self.order} if self.selective else {}

    def load_state_dict(self, tensors: Mapping[str, Tensor], length: int, path: Path) -> None:
        """Resume from what `state_dict` gave; length: of the order; path: where it came from, for error messages."""
        own = self.state_dict()
        if wrong := sorted(own.keys() ^ tensors.keys()):
            raise ValueError(
                f"{path} does not fit this run: tensors of the sampler are missing or unknown: {', '.join(wrong)}"
            )
        if not own:
            return
        margins, order = tensors["margins"], tensors["order"]
        fits = margins.shape == (self.count,) and margins.dtype == torch.float32 and not margins.isnan().any()
        drawn = order.dtype == torch.int64 and order.shape == (length,)
        if not fits or not drawn or (order < 0).any() or (order >= self.count).any():
            raise ValueError(f"{path} does not fit this run: its sampler is not one of {self.count} images")
        self.margins, self.order = margins.clone(), order.clone()


class Batches:
    """Training batches of images (N, C, H, W), uint8 or float32 in [0, 1].

    taken: the indices of the images to train on; by default all. counts: the weight of each image.

    Each epoch is a fresh permutation; the images that do not fill a batch are left out of it. If the recipe draws
    some images less often, an epoch after e1 has several permutations: see `Sampler`. Only the images of one batch are
    ever copied: a data set that is mapped from a file may be larger than the memory.
    """

    def __init__(
        self,
        images: Tensor,
        labels: Tensor,
        recipe: Recipe,
        workers: Workers,
        taken: Tensor | None = None,
        counts: Tensor | None = None,
    ) -> None:
        taken = torch.arange(len(images)) if taken is None else taken
        if recipe.batch_size % workers.world:
            raise ValueError(
                f"batch_size={recipe.batch_size} does not split over {workers.world} processes: choose a multiple"
            )
        if recipe.batch_size > len(taken):
            raise ValueError(f"batch_size={recipe.batch_size} is larger than the {len(taken)} training images")
        self.images, self.labels, self.taken, self.recipe, self.workers = images, labels, taken, recipe, workers
        flip = recipe.flip and "flip" not in recipe.unused_keys()
        self.augmentation = Augment(recipe.pad, recipe.pad_mode, flip, recipe.crop, recipe.pad_share)
        self.warp = Warp(recipe.turn, recipe.stretch, recipe.slide, recipe.warp_share)
        self.steps_per_epoch = len(taken) // recipe.batch_size
        self.sampler = Sampler(len(taken), **_shares(recipe), counts=None if counts is None else counts[taken])
        self._epoch = -1  # whose order `sampler` has
        self._ready: dict[int, tuple[Tensor, Tensor]] = {}

    def at(self, step: int) -> tuple[Tensor, Tensor]:
        """Return this process's share of batch `step`, on the process's device: pixels in [0, 1] and labels."""
        ready, self._ready = self._ready, {}
        return ready[step] if step in ready else self._make(step)

    def prepare(self, step: int) -> None:
        """Make a batch ahead of time, while the GPU computes."""
        if self.sampler.selective and step % self.steps_per_epoch == 0:
            return  # its order follows from margins that are not known yet
        if self.workers.device.type != "cpu":
            self._ready = {step: self._make(step)}

    def _make(self, step: int) -> tuple[Tensor, Tensor]:
        epoch, position = divmod(step, self.steps_per_epoch)
        size, device = self.recipe.batch_size, self.workers.device
        if epoch != self._epoch:
            self._epoch = epoch
            all_images = epoch < self.recipe.e1
            self.sampler.begin_epoch(
                self.steps_per_epoch * size, all_images, _generator(self.recipe.seed, ORDER, epoch)
            )
        mine = slice(self.workers.rank, None, self.workers.world)
        index = self.taken[self.sampler.order[position * size : (position + 1) * size][mine]]
        shape = (size, *self.images.shape[1:])  # choices are drawn for the global batch; each rank takes its slice
        choices = draw(self.augmentation, shape, _generator(self.recipe.seed, CROPS, step))[mine]
        images, labels = send(self.images[index], device), send(self.labels[index], device)
        pixels = as_pixels(choices.apply(images))
        if self.warp.changes:
            pixels = self.warp.apply(pixels, self.warp.draw(size, _generator(self.recipe.seed, WARPS, step))[mine])
        return pixels, labels

    def record(self, step: int, margins: Tensor) -> None:
        """Keep the margins of batch `step`, in units of the threshold; the processes exchange theirs."""
        size = self.recipe.batch_size
        whole = torch.zeros(size, dtype=torch.float32, device=margins.device)
        whole[self.workers.rank :: self.workers.world] = margins
        self.sampler.record(step % self.steps_per_epoch * size, self.workers.sum_tensor(whole).cpu())

    def load_sampler(self, tensors: Mapping[str, Tensor], step: int, path: Path) -> None:
        """Resume before batch `step` with what `sampler.state_dict` gave; path: where it came from."""
        length = self.steps_per_epoch * self.recipe.batch_size if step else 0
        self.sampler.load_state_dict(tensors, length, path)
        if self.sampler.selective:
            self._epoch = -1 if step % self.steps_per_epoch == 0 else step // self.steps_per_epoch


def _by_count(counts: Tensor, length: int, generator: torch.Generator) -> Tensor:
    """Draw each index in proportion to its weight, rounded down or up, in random order.

    It takes `length` equal steps along the cumulative weights from a random start: with `length` equal weights, each
    index is drawn once.
    """
    ends = counts.cumsum(0)
    places = torch.arange(length, dtype=torch.float64) + torch.rand((), generator=generator, dtype=torch.float64)
    drawn = torch.searchsorted(ends, places * (ends[-1] / length), right=True)
    last = counts.nonzero()[-1, 0]  # where rounding leads beyond the sum
    return drawn.clamp(max=last)[torch.randperm(length, generator=generator)]


def _shares(recipe: Recipe) -> dict[str, float]:
    """Return the recipe's sampling probabilities, without those that its loss does not use."""
    return {key: getattr(recipe, key) for key in ("safe_share", "lost_share") if key not in recipe.unused_keys()}


def _generator(seed: int, stream: int, counter: int) -> torch.Generator:
    """Return a generator that is determined by (seed, stream, counter)."""
    digest = hashlib.sha256(f"{seed}/{stream}/{counter}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:4], "little"))
