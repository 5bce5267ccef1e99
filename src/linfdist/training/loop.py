"""The training loop: a trainer with a folder, checkpoints, signals, a terminal, and one process or many."""

import json
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .. import data
from ..eps import in_words
from ..files import alone, read_json_object, remove_leftovers, write_atomically
from ..models import PixelNet, save, zoo
from ..ops import machine
from ..recipes import Recipe
from ..runs.folder import CHECKPOINT, METRICS, MODEL, RECIPE
from .distributed import (
    FRESH_STORE,
    LostWorker,
    Workers,
    meets_where_it_met_before,
    same_code,
    same_images,
    same_recipe,
    without_advice,
    workers,
)
from .progress import Metrics, Reporter, has_checkpoint, load_checkpoint, save_checkpoint
from .schedule import State
from .trainer import Diverged, Progress, Sums, Trainer

Evaluate = Callable[[PixelNet, Tensor, Tensor], dict[str, float]]
CHECKPOINT_SECONDS = 60.0
SAME_SIGNAL_SECONDS = 2.0  # a terminal and a launcher may both pass on one Ctrl-C
NOT_COMPARED = {"name", "source"}  # of a recipe, on resuming: they do not change the training
LOCK = ".training.lock"
EARLY_EPOCHS = 3  # in which a training that learns nothing is told
BARELY = 1.1  # times the share of the largest class: up to there a network has learned nothing
PATIENCE_SECONDS = 20.0  # until a file that one machine has written must be seen by the others


class Interrupted(KeyboardInterrupt):
    """The user stopped the run, and a checkpoint was written."""


def train(
    recipe: Recipe,
    out: str | Path,
    *,
    resume: bool = False,
    data_dir: str | Path | None = None,
    quiet: bool = False,
    tensorboard: bool = False,
    evaluate: Evaluate | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    device: str | torch.device = machine.AUTO,
) -> Path:
    """Train `recipe` into the folder `out` and return it: model.safetensors, recipe.json, metrics.jsonl.

    `resume` continues from the last checkpoint, or starts afresh if there is none; the result has the same bits as that
    of an uninterrupted run. `evaluate(network, images, labels)` adds its numbers, means over these images, to every
    epoch's row. With held-out images it measures those, and training images as `seen_...`, to show the gap; otherwise
    training images alone; never the test set. device: see `machine.choose_device`; a run may be resumed on another one,
    but then only those of the same kind promise the same bits.

    With several processes (`torchrun`), all must get the same arguments; an error on one is raised on all.
    """
    out = Path(out)
    with workers(device) as me:
        try:
            with _folder(out, me):
                if _finished_before(recipe, out, me, resume):
                    return out
                run = _Run(recipe, out, me, data_dir)
                run.restore_or_start()
                run.go(quiet, tensorboard, evaluate, checkpoint_seconds)
        except Diverged as error:
            kept = (out / CHECKPOINT).exists()
            hint = "the last checkpoint is from before this step" if kept else "there is no checkpoint yet"
            raise Diverged(f"{error}; {hint}.", error.step) from None
        except RuntimeError as error:
            if not me.lost(error):
                raise
            again = machine.from_launcher("TORCHELASTIC_RESTART_COUNT", 0) < _restarts()
            what = "torchrun starts it again" if again else "Start the job again with --resume"
            raise LostWorker(
                f"another process of this job is gone ({without_advice(error)}). {what}: "
                "it continues from the last checkpoint, if there is one"
            ) from error
    return out


@contextmanager
def _folder(out: Path, me: Workers) -> Iterator[None]:
    """Make the folder of a run and lock it for this job. A folder that stays empty is removed again."""
    lock, made = out / LOCK, not out.exists()
    try:
        with ExitStack() as held:
            with me.together():
                if me.first:
                    out.mkdir(parents=True, exist_ok=True)
                    held.enter_context(alone(lock, f"trains into {out}", "wait for it, or choose another folder"))
            yield
    finally:
        if me.first and made and out.is_dir() and {path.name for path in out.iterdir()} <= {LOCK}:
            lock.unlink(missing_ok=True)
            with suppress(OSError):
                out.rmdir()


def _restarts() -> int:
    """Return how often torchrun starts failed processes again."""
    return machine.from_launcher("TORCHELASTIC_MAX_RESTARTS", 0)


def _finished_before(recipe: Recipe, out: Path, me: Workers, resume: bool) -> bool:
    """Return whether the run is already finished. Refuse invalid runs before any data are loaded."""
    if me.world > 1:
        me.check_same(
            same_code(me.device), "Install the same on all machines; LINFDIST_ISA sets the engine's instruction set"
        )
        me.check_same(same_recipe(recipe, NOT_COMPARED), "Give all of them the same recipe and settings")
    with me.together():
        finished, begun = (out / MODEL).exists(), has_checkpoint(out / CHECKPOINT)
        holds = "a finished run" if finished else "an unfinished run" if begun else "no run yet"
        if not resume and finished:
            raise FileExistsError(f"{out} holds a finished run: choose another folder, or remove it")
        if not resume and begun:
            raise FileExistsError(f"{out} holds an unfinished run: add --resume to continue, or choose another folder")
        if not resume and _restarts():
            raise ValueError(
                f"torchrun --max-restarts {_restarts()} needs --resume: processes that are started again must continue"
            )
        if _restarts() and meets_where_it_met_before():
            raise ValueError(f"torchrun --max-restarts {_restarts()} needs {FRESH_STORE}")
        if finished or begun:
            _same_recipe(recipe, out)
    me.check_same({f"what {out} holds": holds}, "It must be a folder that all of them share")
    if finished and me.first:
        (out / CHECKPOINT).unlink(missing_ok=True)  # left behind by a run that was killed after it saved the model
        remove_leftovers(out / MODEL)
    return finished


class _Run:
    """A training with its folder."""

    def __init__(self, recipe: Recipe, out: Path, me: Workers, data_dir: str | Path | None) -> None:
        self.out, self.me = out, me
        self.notes: list[str] = []  # for the user
        with me.together():
            train_set = data.load(recipe.data, split="train", data_dir=data_dir, resize=recipe.resize)
        if me.world > 1:
            me.check_same(same_images(train_set), "Give all machines the same data")
        with me.together():
            info, self.classes = data.info(recipe.data, recipe.resize), train_set.classes
            self.trainer = Trainer(recipe, train_set, info, me, resumed=has_checkpoint(out / CHECKPOINT))
        if (teachers := self.trainer.teachers) is not None:
            found = {"what the teachers say": f"sha256 {teachers.checksum[:12]}, scale {teachers.scale!r}"}
            me.check_same(found, "Give all machines the same networks")
        self.notes += [*self.trainer.notes, *_leaks(recipe)]

    def restore_or_start(self) -> None:
        """Resume from the last checkpoint if there is one, else write the first files of the run."""
        path, trainer, me = self.out / CHECKPOINT, self.trainer, self.me
        with me.together():
            if has_checkpoint(path):
                before = load_checkpoint(path, trainer)
                if before != me.world:
                    change = f"processes: {before} before, {me.world} from step {trainer.done} on"
                    self.notes.append(f"{change}; the training is the same up to rounding, but not bit for bit")
            elif me.first:
                write_atomically(self.out / RECIPE, trainer.recipe.model_dump_json(indent=2) + "\n")
        me.check_same({f"the step of {path}": str(trainer.done)}, "It must be in a folder that all of them share")
        with me.together():
            if not me.first:
                _wait_for(self.out / RECIPE)
        if me.first:
            for name in (RECIPE, METRICS, CHECKPOINT, MODEL):
                remove_leftovers(self.out / name)

    def save(self) -> None:
        """Write a checkpoint. All processes must call this; the first one writes."""
        self.trainer.check_weights()  # a bad checkpoint must not replace a good one
        with self.me.together():
            if self.me.first:
                save_checkpoint(self.out / CHECKPOINT, self.trainer)

    def go(self, quiet: bool, tensorboard: bool, evaluate: Evaluate | None, checkpoint_seconds: float) -> None:
        """Do all remaining steps, then write the finished model."""
        first, trainer, recipe = self.me.first, self.trainer, self.trainer.recipe
        with self.me.together():
            metrics = Metrics(self.out / METRICS, trainer.done) if first else None
            writer = _tensorboard(self.out, trainer.done) if tensorboard and first else None
        reporter = Reporter(recipe.name, trainer.total, trainer.done, recipe.batch_size, show=first, quiet=quiet)
        for note in self.notes:
            reporter.line(trainer.done, note)
        trainer.shared = self.me.sharing(trainer.objective)
        saved = time.monotonic()
        started = saved - (metrics.seconds if metrics is not None else 0.0)
        busy = time.process_time() - (metrics.cpu_seconds / self.me.world if metrics is not None else 0.0)
        try:
            with _stop_requests() as stop:
                while not trainer.finished:
                    loss = trainer.step()
                    reporter.step(trainer.done, _describe(trainer.last, loss, trainer.sums))
                    if trainer.epoch_ended:
                        row = self.end_epoch(reporter, evaluate, time.monotonic() - started)
                        row["cpu_seconds"] = (time.process_time() - busy) * self.me.world
                        with self.me.together():
                            if metrics is not None:
                                metrics.add(row)
                        if writer is not None:
                            for name, value in row.items():
                                if isinstance(value, float) and math.isfinite(value):
                                    writer.add_scalar(name, value, trainer.done)
                    late = first and time.monotonic() - saved > checkpoint_seconds
                    wanted = self.me.sum({"stop": float(bool(stop)), "save": float(late)})  # all do the same
                    if wanted["stop"] or wanted["save"]:
                        self.save()
                        saved = time.monotonic()
                    if wanted["stop"]:
                        raise Interrupted(
                            f"stopped at step {trainer.done} of {trainer.total}; --resume continues from here"
                        )
        finally:
            trainer.shared = trainer.objective  # the wrapper must not outlive the group: see `workers`
            reporter.close()
            if writer is not None:
                writer.close()
        network = trainer.finish()
        with self.me.together():
            if first:
                network.class_names, network.resize = self.classes, recipe.resize
                save(network, self.out / MODEL, {"recipe": recipe.name})
                (self.out / CHECKPOINT).unlink(missing_ok=True)

    def end_epoch(self, reporter: Reporter, evaluate: Evaluate | None, seconds: float) -> dict[str, Any]:
        """Return the row of the epoch that ends here."""
        progress = self.trainer.end_epoch()
        row: dict[str, Any] = {
            "step": progress.step, "epoch": progress.epoch, "p": None if math.isinf(progress.p) else progress.p,
            "lr": progress.lr, "eps_train": 0.0, **self.trainer.last.loss, "loss": progress.loss,
            "train_accuracy": progress.train_accuracy, "images_per_second": reporter.rate(progress.step),
            "seconds": seconds,
        }  # fmt: skip
        if evaluate is not None:
            row |= self.look(evaluate, *self.trainer.watched)
            if self.trainer.recipe.holdout:
                row |= {f"seen_{name}": mean for name, mean in self.look(evaluate, *self.trainer.trained_on).items()}
        extra = " ".join(f"{name} {row[name]:.2f}" for name in ("clean", "certified") if name in row)
        if extra:
            extra = f"  {'held-out' if self.trainer.recipe.holdout else 'training'} images: {extra}"
        if "seen_certified" in row:
            extra += f" (training images {row['seen_certified']:.2f})"
        reporter.line(
            progress.step,
            f"epoch {progress.epoch:.0f}  p {progress.p:.4g}  lr {progress.lr:.4f}  loss {progress.loss:.4f}  "
            f"train {progress.train_accuracy:.2f}{extra}  {row['images_per_second']:.0f} img/s",
        )
        if warning := self.warning(progress, row):
            reporter.line(progress.step, warning)
        return row

    def warning(self, progress: Progress, row: dict[str, Any]) -> str:
        """Return a warning if the training has learned nothing yet, or nothing at all; else an empty text."""
        chance = self.trainer.chance
        if self.trainer.finished and row.get("clean", math.inf) <= BARELY * chance:
            what, now = "this network has learned nothing", row["clean"]
        elif progress.epoch <= EARLY_EPOCHS and progress.train_accuracy <= BARELY * chance:
            what, now = "nothing is learned so far", progress.train_accuracy
        else:
            return ""
        return (
            f"warning: {what}: {now:.2f} % are right, and {chance:.2f} % would be by always naming one class. "
            f"Check images and labels; then try {' or '.join(_remedies(self.trainer.recipe))}"
        )

    def look(self, evaluate: Evaluate, images: Tensor, labels: Tensor) -> dict[str, float]:
        """Return what `evaluate` measures; each process evaluates its share of the images."""
        result = self.trainer.result.eval()
        if len(images) >= self.me.world > 1:
            mine = slice(self.me.rank, None, self.me.world)
            images, labels = images[mine], labels[mine]
        with self.me.together():
            means = evaluate(result, images.to(self.me.device), labels.to(self.me.device))
        if self.me.world == 1:
            return means
        counted = self.me.sum({"images": len(images), **{name: mean * len(images) for name, mean in means.items()}})
        return {name: counted[name] / counted["images"] for name in means}


def _leaks(recipe: Recipe) -> Iterator[str]:
    """List the networks that a recipe names and that may know the images it holds out."""
    for place in recipe.networks if recipe.holdout else []:
        file, values = Path(place) / RECIPE, {}
        if file.exists():
            values = read_json_object(file)
        elif place in zoo.names():
            values = zoo.card(place).recipe
        if values.get("data", recipe.data) == recipe.data and values.get("holdout") != recipe.holdout:
            yield f"{place} may know the held-out images: it is not known to be trained with holdout = {recipe.holdout}"


def _remedies(recipe: Recipe) -> Iterator[str]:
    """Yield settings that may help a training that learns nothing, the likeliest first."""
    if recipe.loss == "scaled_ce" and recipe.number("ce_start") < 1:
        yield "--set ce_start=1"
    if recipe.threshold is not None:
        yield f"--set threshold={in_words(recipe.fraction('threshold') / 2)}"
    if recipe.start is None and recipe.loss == "ibp_hinge":
        yield "--set start=NETWORK, which this loss needs"
    yield f"--set lr={recipe.lr / 3:.2g}"


def _wait_for(path: Path) -> None:
    """Wait for a file that another process has written: network file systems may take some seconds."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not path.is_file():
        if time.monotonic() > end:
            raise FileNotFoundError(f"{path} is not seen here: it must be in a folder that all processes share")
        time.sleep(0.1)
        if path.parent.is_dir():
            os.listdir(path.parent)  # which makes a network file system look again


def _describe(state: State, loss: float, sums: Sums) -> str:
    accuracy = 100 * sums["correct"] / max(sums["seen"], 1)
    eps = f" ε {state.loss['eps_train']:.3f}" if state.loss.get("eps_train") else ""
    return f"epoch {state.epoch:.1f} p {state.p:.4g}{eps} lr {state.lr:.4f} loss {loss:.3f} acc {accuracy:.1f}"


def _same_recipe(recipe: Recipe, out: Path) -> None:
    try:
        kept = read_json_object(out / RECIPE)
    except (OSError, ValueError) as error:
        raise ValueError(f"{out} cannot be resumed: its recipe.json cannot be read ({error})") from None
    now = json.loads(recipe.model_dump_json())
    keys = (kept.keys() | now.keys()) - NOT_COMPARED
    newer = {key: field.default for key, field in Recipe.model_fields.items() if not field.is_required()}
    kept = newer | kept  # keys that are newer than the run
    different = sorted(key for key in keys if kept.get(key) != now.get(key))
    if different:
        changes = ", ".join(f"{key}: {kept.get(key)!r} there, {now.get(key)!r} now" for key in different)
        raise ValueError(f"{out} was started with another recipe ({changes}): use the same settings, or another folder")


@contextmanager
def _stop_requests() -> Iterator[list[float]]:
    """Collect Ctrl-C and SIGTERM, so that a checkpoint is written first; a second one stops at once."""
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
        raise ImportError("--tensorboard needs the package tensorboard: pip install tensorboard") from None
    return SummaryWriter(out / "tensorboard", purge_step=step)
