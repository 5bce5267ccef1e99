"""A training in memory, from a recipe, images and labels to weights; `loop` adds files, signals and terminals."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from ..data import Dataset, Info
from ..data.base import spread_out
from ..data.samples import as_pixels
from ..errors import LinfdistError
from ..models import PixelNet
from ..models.grow import clip_pixels
from ..models.loading import load_into
from ..recipes import Recipe
from .batches import Batches
from .distributed import Workers
from .losses import margins
from .objective import Objective, build_network, own_network, start_network, whole_network
from .optim import DistAdam
from .schedule import State, state_at, total_steps
from .teachers import Teachers

WATCHED_IMAGES = 1000  # of the training set, to look at during training
Sums = dict[str, float]


class Diverged(LinfdistError, RuntimeError):
    """The loss or a weight is no longer a finite number. `step` is the step that made it so."""

    def __init__(self, message: str, step: int) -> None:
        super().__init__(message)
        self.step = step


@dataclass(frozen=True)
class Progress:
    """The progress of a training at the end of an epoch."""

    step: int  # steps done
    total: int  # steps of the whole training
    epoch: float
    loss: float  # mean over the epoch
    train_accuracy: float  # percent, mean over the epoch
    p: float
    lr: float


PRUNED = (
    "training starts from a pruned network: at p = inf it is the whole one, but weights that never count there are "
    "lost, and at finite p they would have counted; start from the unpruned file if you have it"
)


class Trainer:
    """Everything that one training holds: network, objective, optimiser and batches.

    dataset: the training images, of which the recipe's `holdout` are set aside. info: what the network is built for.
    resumed: the weights will come from `load_state`, so the recipe's `start` is not read, and may be gone.
    counts: (N,) float64 >= 0, how much each training image counts in the loss; None: all the same.
    network: one to train in place of the recipe's, see `own_network`.
    Initialisation, order and augmentation follow from the recipe's seed and the step alone, except where some images
    are drawn less often (`Sampler`); torch's own generator is left as it was.
    """

    def __init__(
        self,
        recipe: Recipe,
        dataset: Dataset,
        info: Info,
        workers: Workers | None = None,
        resumed: bool = False,
        counts: Tensor | None = None,
        network: object = None,
    ) -> None:
        recipe.check_images(*info.shape[1:])
        self.recipe, self.workers = recipe, workers or Workers()
        images, labels = dataset.images, dataset.labels
        if recipe.holdout >= len(images):
            raise ValueError(f"holdout = {recipe.holdout}: must be less than the {len(images)} training images")
        kept, held = torch.ones(len(images), dtype=torch.bool), spread_out(recipe.holdout, len(images))
        kept[held] = False
        (taken,) = kept.nonzero(as_tuple=True)  # not the images themselves: they stay in the file they are mapped from
        seen = taken[spread_out(WATCHED_IMAGES, len(taken))]
        self.trained_on = (images[seen], labels[seen])  # training images as they are
        self.watched = (images[held], labels[held]) if recipe.holdout else self.trained_on
        self.chance = 100 * float(labels[taken].bincount().max()) / len(taken)  # percent, by naming the largest class
        if info.num_classes < 2 or len(labels[taken].unique()) < 2:
            raise ValueError(f"{info.name}: all training images are of one class; a classifier needs at least two")
        self.batches = Batches(images, labels, recipe, self.workers, taken, counts)
        self.total = total_steps(recipe, self.batches.steps_per_epoch)

        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(recipe.seed)
            few = (as_pixels(self.trained_on[0]), self.trained_on[1])
            if network is not None:
                taken_on = own_network(recipe, network, info)
            else:
                taken_on = build_network(recipe, info) if resumed else start_network(recipe, info, few)
        self.done = 0  # steps
        self.notes = [PRUNED] if taken_on.pruned else []  # for the user
        self.teachers = None
        if recipe.teachers:
            self.teachers = Teachers(recipe, info, taken_on.size, few, self.workers.device)
            self.notes.append(self.teachers.note)
        taken_on.forget_pruning()
        self._take(taken_on)
        self.last = self.state  # the settings of the last step
        self.sums = no_sums()  # of this epoch so far, over all processes

    def _take(self, network: PixelNet) -> None:
        """Train this network from here on, with Adam's moments at zero."""
        recipe = self.recipe
        self.network = network
        self.objective = Objective(recipe, network, self.teachers).to(self.workers.device)
        self.result = whole_network(recipe, network)  # which shares the weights of the network that is trained
        self.shared: nn.Module = self.objective  # or a wrapper that averages gradients over processes
        self.optimiser = DistAdam(
            self.objective.named_parameters(),
            lp=self.objective.dist_weights() if recipe.decay == "lp" else set(),
            lr_factors=self.objective.lr_factors(),
            beta1=recipe.beta1,
            beta2=recipe.beta2,
            eps=recipe.adam_eps,
            weight_decay=0.0 if recipe.decay == "none" else recipe.weight_decay,
        )
        self.optimiser.steps = self.done

    def _put_clip_in_front(self) -> None:
        """Put the recipe's `box_clip` in front of the network and continue with the same weights, as e4 does."""
        before, wrapped = self.objective, self.shared is not self.objective
        with torch.random.fork_rng(devices=[]):
            clipped = clip_pixels(self.network, self.recipe.box_clip or [])
        self._take(clipped.to(self.workers.device))
        self.objective.loss.load_state_dict(before.loss.state_dict())
        if wrapped:
            self.shared = self.workers.sharing(self.objective)

    def _has_clip_to_come(self, state: State) -> bool:
        return state.boxes and self.recipe.box_clip is not None and self.network.config.get("clip") is None

    @property
    def state(self) -> State:
        """The settings of the next step."""
        return state_at(self.recipe, self.done, self.batches.steps_per_epoch)

    @property
    def finished(self) -> bool:
        """Whether all steps are done."""
        return self.done >= self.total

    @property
    def epoch_ended(self) -> bool:
        """Whether the last step was the last of an epoch, or of the training."""
        return self.finished or self.done % self.batches.steps_per_epoch == 0

    def step(self, state: State | None = None) -> float:
        """Do one step and return its loss. `state`: other settings than the schedule's."""
        self.last = state = state or self.state
        if self._has_clip_to_come(state):
            self._put_clip_in_front()
        x, y = self.batches.at(self.done)
        loss, correct, z = self.differentiate(x, y, state)
        if self.batches.sampler.selective:
            self.batches.record(self.done, margins(z, y) / self.objective.loss.aim(state))
        self.update(state)
        self.done += 1
        self.sums["loss"] += loss * self.recipe.batch_size
        self.sums["correct"] += correct
        self.sums["seen"] += self.recipe.batch_size
        return loss

    def differentiate(self, x: Tensor, y: Tensor, state: State) -> tuple[float, int, Tensor]:
        """Compute the gradients of a batch; return its loss, how many images are classified correctly, and the logits.

        Loss and number are those of the whole batch, over all processes: if the loss is not finite on one of them, all
        stop. The logits are those of this process's images.
        """
        self.objective.train()
        loss, z = self.shared(x, y, state)
        self.optimiser.zero_grad()
        loss.backward()
        if self.done + 1 < self.total:
            self.batches.prepare(self.done + 1)  # before anything is read from a GPU, which would mean to wait for it
        z = z.detach()
        correct = (z.argmax(1) == y).sum()
        whole = self.workers.sum({"loss": float(loss.detach()), "correct": float(correct)})
        value = whole["loss"] / self.workers.world
        if not math.isfinite(value):
            raise self._diverged(f"the loss became {value} at", self.done)
        return value, int(whole["correct"]), z

    def update(self, state: State) -> None:
        """Move the weights by their gradients."""
        self.optimiser.step(state.lr, state.p)

    def end_epoch(self) -> Progress:
        """Return the means of the epoch that ends here, and begin a new one."""
        self.check_weights()
        sums, self.sums = self.sums, no_sums()
        seen = max(sums["seen"], 1)
        return Progress(
            step=self.done,
            total=self.total,
            epoch=self.done / self.batches.steps_per_epoch,
            loss=sums["loss"] / seen,
            train_accuracy=100 * sums["correct"] / seen,
            p=self.last.p,
            lr=self.last.lr,
        )

    def run(self, after_epoch: Callable[[Progress], object] | None = None) -> PixelNet:
        """Take all steps that are left, and return the result; what `after_epoch` raises ends the training."""
        while not self.finished:
            self.step()
            if self.epoch_ended:
                progress = self.end_epoch()
                if after_epoch is not None:
                    after_epoch(progress)
        return self.finish()

    def finish(self) -> PixelNet:
        """Return the result, in eval mode."""
        return self.result.eval()

    def check_weights(self) -> None:
        """Raise Diverged if a weight is not finite, although the loss was."""
        for name, parameter in self.objective.named_parameters():
            if not parameter.isfinite().all():
                raise self._diverged(f"{name} has values that are not finite after", self.done - 1)

    def state_dict(self) -> dict[str, Tensor]:
        """Return all tensors that a resumed training needs: weights, moments of Adam, sampler."""
        parts = {
            "model": self.objective.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "sampler": self.batches.sampler.state_dict(),
        }
        return {f"{part}/{name}": tensor for part, tensors in parts.items() for name, tensor in tensors.items()}

    def load_state(self, tensors: Mapping[str, Tensor], step: int, sums: Sums, path: Path) -> None:
        """Resume from what `state_dict` gave after `step` steps. `path` is where it came from, for error messages."""
        parts: dict[str, dict[str, Tensor]] = {"model": {}, "optimiser": {}, "sampler": {}}
        for name, tensor in tensors.items():
            part, _, rest = name.partition("/")
            if part not in parts:
                raise ValueError(f"{path} is not a checkpoint: it has a tensor {name!r}")
            parts[part][rest] = tensor
        if step > 0 and self._has_clip_to_come(state_at(self.recipe, step - 1, self.batches.steps_per_epoch)):
            self._put_clip_in_front()
        load_into(self.objective, parts["model"], path)
        try:
            self.optimiser.load_state_dict(parts["optimiser"], step)
        except ValueError as error:
            raise ValueError(f"{path} does not fit this run: {error}") from None
        self.batches.load_sampler(parts["sampler"], step, path)
        self.done, self.sums = step, sums

    def _diverged(self, what: str, step: int) -> Diverged:
        state = state_at(self.recipe, step, self.batches.steps_per_epoch)
        return Diverged(
            f"{what} step {step} (epoch {state.epoch:.2f}, p = {state.p:.4g}, lr = {state.lr:.3g}). "
            f"Lower the learning rate (lr = {self.recipe.lr:g}) or lengthen the p-ramp (e2 = {self.recipe.e2:g})",
            step,
        )


def no_sums() -> Sums:
    """Return the zero sums of a new epoch."""
    return {"loss": 0.0, "correct": 0.0, "seen": 0.0}
