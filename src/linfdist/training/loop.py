"""The training loop: deterministic, interruptible at any moment, the same on one process or many."""

import json
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from .. import data
from ..errors import LinfdistError
from ..files import remove_leftovers, write_atomically
from ..models import PixelNet, save
from ..models.saved import FILE as MODEL
from ..recipes import Recipe
from . import checkpoint
from .average import Average
from .batches import Batches
from .distributed import Workers, workers
from .objective import Objective, build_network, start_network
from .optim import DistAdam
from .progress import Metrics, Reporter
from .schedule import State, state_at, total_steps

Evaluate = Callable[[PixelNet, Tensor, Tensor], dict[str, float]]
CHECKPOINT_SECONDS = 60.0
EVALUATION_IMAGES = 1000
SAME_SIGNAL_SECONDS = 2.0  # a terminal and a launcher may both pass on one Ctrl-C
NOT_COMPARED = {"name", "source"}  # of a recipe, on resuming: they do not change the training


class Diverged(LinfdistError, RuntimeError):
    """The loss is not a number any more."""


class LostWorker(LinfdistError, RuntimeError):
    """Another process of the job is gone."""


class Interrupted(KeyboardInterrupt):
    """Stopped by the user, after a checkpoint."""


def train(
    recipe: Recipe,
    out: Path,
    *,
    resume: bool = False,
    data_dir: Path | None = None,
    quiet: bool = False,
    tensorboard: bool = False,
    evaluate: Evaluate | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
) -> Path:
    """Train `recipe` into the folder `out` and return it: model.safetensors, recipe.json, metrics.jsonl.

    `resume` goes on from the last checkpoint, or starts afresh if there is none; the result has the same bits as that
    of an uninterrupted run. `evaluate(network, images, labels)` adds its numbers to every epoch's row: on the recipe's
    held-out images, else on training images, never on the test set.
    """
    with workers() as me:
        if (out / MODEL).exists():
            if not resume:
                raise FileExistsError(f"{out} holds a finished run: choose another folder, or remove it")
            _same_recipe(recipe, out)
            if me.first:
                (out / checkpoint.FILE).unlink(missing_ok=True)  # killed after the model, before these
                remove_leftovers(out / MODEL)
            return out
        if (out / checkpoint.FILE).exists() and not resume:
            raise FileExistsError(f"{out} holds an unfinished run: add --resume to go on, or choose another folder")
        try:
            run = _Run(recipe, out, me, data_dir)
            run.restore_or_start()
            run.go(quiet, tensorboard, evaluate, checkpoint_seconds)
        except RuntimeError as error:
            if not me.lost(error):
                raise
            raise LostWorker(
                f"another process of this job is gone ({error}). Start the job again with --resume: "
                "it goes on from the last checkpoint, if there is one"
            ) from error
    return out


class _Run:
    """A run in progress."""

    def __init__(self, recipe: Recipe, out: Path, me: Workers, data_dir: Path | None) -> None:
        self.recipe, self.out, self.me = recipe, out, me
        train_set = data.load(recipe.data, split="train", data_dir=data_dir)
        images, labels = train_set.images, train_set.labels
        watched = _spread(recipe.holdout or EVALUATION_IMAGES, len(images))
        self.evaluation = (images[watched], labels[watched])
        if recipe.holdout:
            kept = torch.ones(len(images), dtype=torch.bool)
            kept[watched] = False
            images, labels = images[kept], labels[kept]
        self.batches = Batches(images, labels, recipe, me)
        self.total = total_steps(recipe, self.batches.steps_per_epoch)

        torch.manual_seed(recipe.seed)
        resumes = (out / checkpoint.FILE).exists()  # then the recipe's `start` is not needed any more, and may be gone
        self.network = (build_network if resumes else start_network)(recipe, data.info(recipe.data))
        self.average = Average(self.network, recipe.average)
        self.objective = Objective(recipe, self.network).to(me.device)
        self.optimiser = DistAdam(
            self.objective.named_parameters(),
            lp=self.objective.dist_weights() if recipe.decay == "lp" else set(),
            lr_factors={"scaled_ce.scale": 0.2},
            beta1=recipe.beta1,
            beta2=recipe.beta2,
            eps=recipe.adam_eps,
            weight_decay=0.0 if recipe.decay == "none" else recipe.weight_decay,
        )
        self.step = 0
        self.sums = checkpoint.no_sums()  # of this process

    def restore_or_start(self) -> None:
        """Take up the last checkpoint, if there is one."""
        path = self.out / checkpoint.FILE
        if path.exists():
            _same_recipe(self.recipe, self.out)
            self.step, sums = checkpoint.load(path, self.objective, self.optimiser, self.average, self.total)
            self.sums = sums if self.me.first else checkpoint.no_sums()
        elif self.me.first:
            self.out.mkdir(parents=True, exist_ok=True)
            write_atomically(self.out / "recipe.json", self.recipe.model_dump_json(indent=2) + "\n")
        if self.me.sum({"step": self.step})["step"] != self.step * self.me.world:
            raise ValueError(f"the processes do not see the same checkpoint: {self.out} must be a folder they share")
        if self.me.first:
            for name in ("recipe.json", "metrics.jsonl", checkpoint.FILE, MODEL):
                remove_leftovers(self.out / name)

    def save(self) -> None:
        """A checkpoint, written by the first process; all must call this."""
        self.check_weights()
        sums = self.me.sum(self.sums)
        if self.me.first:
            checkpoint.save(self.out / checkpoint.FILE, self.objective, self.optimiser, self.average, self.step, sums)

    def check_weights(self) -> None:
        """Weights that are not finite must not replace the last good checkpoint: Diverged."""
        for name, parameter in self.objective.named_parameters():
            if not parameter.isfinite().all():
                state = state_at(self.recipe, self.step - 1, self.batches.steps_per_epoch)
                raise Diverged(self.explain(f"{name} has values that are not finite after", self.step - 1, state))

    def explain(self, what: str, step: int, state: State) -> str:
        """What happened and what to do."""
        kept = (self.out / checkpoint.FILE).exists()
        return (
            f"{what} step {step} (epoch {state.epoch:.2f}, p = {state.p:.4g}, lr = {state.lr:.3g}). "
            "Lower the learning rate (--set lr=…) or lengthen the p-ramp (--set e2=…); "
            + ("the last checkpoint is from before this step." if kept else "there is no checkpoint yet.")
        )

    def go(self, quiet: bool, tensorboard: bool, evaluate: Evaluate | None, checkpoint_seconds: float) -> None:
        """All remaining steps, then the finished model."""
        first = self.me.first
        metrics = Metrics(self.out / "metrics.jsonl", self.step) if first else None
        writer = _tensorboard(self.out, self.step) if tensorboard and first else None
        reporter = Reporter(self.recipe.name, self.total, self.step, self.recipe.batch_size, show=first, quiet=quiet)
        wrapped = DistributedDataParallel(self.objective) if self.me.world > 1 else self.objective
        per_epoch = self.batches.steps_per_epoch
        saved = started = time.monotonic()
        try:
            with _stop_requests() as stop:
                while self.step < self.total:
                    state = state_at(self.recipe, self.step, per_epoch)
                    loss = self.one_step(wrapped, state)
                    reporter.step(self.step, _describe(state, loss, self.sums))
                    if self.step % per_epoch == 0 or self.step == self.total:
                        self.check_weights()
                        row = self.end_epoch(state, reporter, evaluate, time.monotonic() - started)
                        if metrics is not None:
                            metrics.add(row)
                        if writer is not None:
                            for name, value in row.items():
                                if isinstance(value, float) and math.isfinite(value):
                                    writer.add_scalar(name, value, self.step)
                    late = first and time.monotonic() - saved > checkpoint_seconds
                    wanted = self.me.sum({"stop": float(bool(stop)), "save": float(late)})  # all do the same
                    if wanted["stop"] or wanted["save"]:
                        self.save()
                        saved = time.monotonic()
                    if wanted["stop"]:
                        raise Interrupted(f"stopped at step {self.step} of {self.total}; --resume goes on from here")
        finally:
            reporter.close()
            if writer is not None:
                writer.close()
        self.average.apply()
        if first:
            save(self.network, self.out / MODEL, {"recipe": self.recipe.name})
            (self.out / checkpoint.FILE).unlink(missing_ok=True)

    def one_step(self, wrapped: torch.nn.Module, state: State) -> float:
        """Forward, backward, update."""
        x, y = self.batches.at(self.step)
        self.objective.train()
        loss, z = wrapped(x, y, state)
        value = float(loss.detach())
        if not math.isfinite(value):
            raise Diverged(self.explain(f"the loss became {value} at", self.step, state))
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step(state.lr, state.p)
        if self.recipe.average and math.isinf(state.p):
            self.average.update()
        self.step += 1
        self.sums["loss"] += value * len(y)
        self.sums["correct"] += int((z.detach().argmax(1) == y).sum())
        self.sums["seen"] += len(y)
        return value

    def end_epoch(self, state: State, reporter: Reporter, evaluate: Evaluate | None, seconds: float) -> dict[str, Any]:
        """The row of the epoch that ends here."""
        self.sums = self.me.sum(self.sums)
        seen = max(self.sums["seen"], 1)
        row: dict[str, Any] = {
            "step": self.step, "epoch": self.step / self.batches.steps_per_epoch, "p": state.p, "lr": state.lr,
            "eps_train": state.eps_train, "loss": self.sums["loss"] / seen,
            "train_accuracy": 100 * self.sums["correct"] / seen,
            "images_per_second": reporter.rate(self.step), "seconds": seconds,
        }  # fmt: skip
        if math.isinf(state.p):
            row["p"] = None  # JSON has no infinity
        if evaluate is not None and self.me.first:
            self.objective.eval()
            images, labels = (tensor.to(self.me.device) for tensor in self.evaluation)
            with self.average.applied():  # what is measured is what will be kept
                row |= evaluate(self.network, images, labels)
        self.sums = checkpoint.no_sums()
        extra = "".join(f"  {name} {row[name]:.2f}" for name in ("clean", "certified") if name in row)
        reporter.line(
            self.step,
            f"epoch {row['epoch']:.0f}  p {state.p:.4g}  lr {state.lr:.4f}  loss {row['loss']:.4f}  "
            f"train {row['train_accuracy']:.2f}{extra}  {row['images_per_second']:.0f} img/s",
        )
        return row


def _spread(count: int, images: int) -> Tensor:
    """Indices of so many images, evenly spaced: a data set may be sorted by class."""
    count = min(count, images)
    return torch.arange(count) * images // max(count, 1)


def _describe(state: State, loss: float, sums: dict[str, Any]) -> str:
    accuracy = 100 * sums["correct"] / max(sums["seen"], 1)
    eps = f" ε {state.eps_train:.3f}" if state.eps_train else ""
    return f"epoch {state.epoch:.1f} p {state.p:.4g}{eps} lr {state.lr:.4f} loss {loss:.3f} acc {accuracy:.1f}"


def _same_recipe(recipe: Recipe, out: Path) -> None:
    try:
        kept = json.loads((out / "recipe.json").read_text(encoding="utf-8"))
        if not isinstance(kept, dict):
            raise ValueError("not a JSON object")
    except (OSError, ValueError) as error:
        raise ValueError(f"{out} cannot be resumed: its recipe.json cannot be read ({error})") from None
    now = json.loads(recipe.model_dump_json())
    keys = (kept.keys() | now.keys()) - NOT_COMPARED
    kept = {key: field.default for key, field in Recipe.model_fields.items()} | kept  # keys that are newer than the run
    different = sorted(key for key in keys if kept.get(key) != now.get(key))
    if different:
        changes = ", ".join(f"{key}: {kept.get(key)!r} there, {now.get(key)!r} now" for key in different)
        raise ValueError(f"{out} was started with another recipe ({changes}): use the same settings, or another folder")


@contextmanager
def _stop_requests() -> Iterator[list[float]]:
    """Collects Ctrl-C and SIGTERM, so that a step is finished and a checkpoint written first; again stops at once."""
    caught: list[float] = []  # when
    before = {}

    def handler(number: int, frame: object) -> None:
        if caught and time.monotonic() - caught[0] > SAME_SIGNAL_SECONDS:
            raise KeyboardInterrupt
        caught.append(time.monotonic())

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            before[number] = signal.signal(number, handler)
    try:
        yield caught
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def _tensorboard(out: Path, step: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise ImportError("--tensorboard needs the extra: pip install 'linfdist[tensorboard]'") from None
    return SummaryWriter(out / "tensorboard", purge_step=step)
