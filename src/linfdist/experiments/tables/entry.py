"""One contender's entry: settings tried on held-out images, a training on all images, an evaluation on the test set.

Each finished step is kept in a file, and not repeated: trial-1.json, ..., model.safetensors, the evaluation's rows.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import torch

from ... import models
from ...data import Dataset
from ...evaluation import evaluate
from ...evaluation.progress import busy
from ...files import header_in, read_bytes, write_atomically
from ...models import PixelNet
from ...models.loading import parse_floats
from ...ops.machine import in_words
from ...runs.folder import MODEL
from ...runs.records import Record, read_records
from ...training import Diverged
from .contenders import Contender, Task
from .rows import CompareRow, Setting, Trial, plain, setting_in_words
from .rules import Rules, checksum
from .trials import REHEARSAL, SHARE, epochs_within, measure, percentages, seconds_per_epoch, told_to, train_within

MEASURED_BY = ("pgd", "strong")  # of every row, for the columns pgd20 and strongest: a further attack would change rows
_RESET, _STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")
HEADER = "compare"  # the key of a network's file that holds its record


class Trained(Record):
    """The record of a training, which is kept in the file of its network."""

    setting: Setting
    epochs: float
    seconds: float
    memory_mb: float | None = None


@dataclass(frozen=True)
class Images:
    """The images of every contender: of trials, held out from trials, of the training, and the first test images."""

    trial: Task
    held: Dataset
    all: Task
    test: Dataset


class Entry:
    """The work of one contender under the rules of a comparison, kept in its folder."""

    def __init__(
        self,
        contender: Contender,
        rules: Rules,
        images: Images,
        folder: Path,
        tell: Callable[[str], None] = lambda text: None,
        show: bool = False,
    ) -> None:
        self.contender, self.rules, self.images, self.folder = contender, rules, images, folder
        self.tell, self.show, self.eps = tell, show, rules.recipe.eps
        self.timings: dict[int, float] = {}  # seconds per epoch, by the number of the setting

    def epoch_seconds(self, number: int) -> float:
        """Return the seconds that an epoch takes with setting `number` = 0, 1, ..., measured in short trainings."""
        if number not in self.timings:
            self.timings[number] = self._timed(number, SHARE)
        return self.timings[number]

    def _timed(self, number: int, share: float) -> float:
        setting, long = self.contender.settings[number], share * self.rules.budget
        with busy(f"{self.contender.title}: timing short trainings", self.show):
            return seconds_per_epoch(self.contender, self.images.trial, setting, long)

    def run(self) -> CompareRow:
        """Run whatever is missing, and return the row."""
        self.folder.mkdir(parents=True, exist_ok=True)
        trials = [self.trial(number) for number in range(self.rules.trials)] if self.rules.trials > 1 else []
        best = max(range(len(trials)), key=lambda number: trials[number].rank, default=0)
        if trials and trials[best].problem is not None:
            raise Diverged(f"{self.contender.title}: no trial came to its end; {trials[best].problem}", 0)
        epoch = max(trials[best].seconds, 1e-3) / trials[best].epochs if trials else None
        network, trained = self.trained(best, epoch)
        return self.row(trials, network, trained)

    def trial(self, number: int) -> Trial:
        """Train with a setting for a short while, and measure it on the held-out images."""
        path, setting = self.folder / f"trial-{number + 1}.json", self.contender.settings[number]
        before = read_records(path, Trial)
        if before and before[0].setting == plain(setting):
            return before[0]
        task, seconds = self.images.trial, self.rules.trial_seconds
        epochs = epochs_within(seconds, self.epoch_seconds(number), self.contender.steps_per_epoch(task, setting))
        what = f"trial {number + 1} of {self.rules.trials}, {setting_in_words(plain(setting))}"
        measured, problem, start = {"clean": 0.0, "pgd20": 0.0, "certified": 0.0}, None, time.perf_counter()
        try:
            with busy(f"{self.contender.title}: {what}, {epochs:.3g} epochs in {seconds:.3g} s", self.show) as add:
                network = self.contender.train(task, setting, epochs, told_to(add))
                took = time.perf_counter() - start
                measured = measure(network, self.images.held, self.eps, self.method)
        except Diverged as error:
            took, problem = time.perf_counter() - start, str(error)
        trial = Trial.model_validate(
            {"setting": plain(setting), "epochs": epochs, "seconds": round(took, 3), **measured, "problem": problem}
        )
        write_atomically(path, trial.model_dump_json(exclude_none=True) + "\n")
        short = "; less than one epoch favours settings that learn quickly" if trial.epochs < 1 else ""
        self.tell(
            f"  {what}: {trial.epochs:.3g} epochs, {took:.1f} s, {problem or percentages(measured)} (held out){short}"
        )
        return trial

    def trained(self, number: int, epoch: float | None) -> tuple[PixelNet, Trained]:
        """Train on all images with a setting; epoch: the seconds per epoch in its trial, if there was a trial."""
        path, setting = self.folder / MODEL, self.contender.settings[number]
        if path.exists():
            try:
                content = read_bytes(path)
                record = Trained.parse(str(header_in(content, path).get(HEADER)), f"{path}, its record", "training")
                if record.setting == plain(setting):
                    return parse_floats(content, path), record
            except ValueError as error:
                raise ValueError(f"{error}; remove it, and it is trained again") from None
        task, seconds = self.images.all, self.rules.training_seconds
        per_epoch = self._timed(number, REHEARSAL) if epoch is None else epoch
        per_epoch *= len(task.dataset) / len(self.images.trial.dataset)
        watched = _reset_peak()
        network, epochs, took = train_within(
            seconds, per_epoch, self.contender, task, setting, "training", self.tell, self.show
        )
        peak = _peak_mb() if watched else None
        record = Trained(setting=plain(setting), epochs=epochs, seconds=round(took, 3), memory_mb=peak)
        network.class_names = task.dataset.classes
        models.save(network, path, {HEADER: record.model_dump_json(exclude_none=True)})
        self.tell(f"  training, {setting_in_words(plain(setting))}: {epochs:.3g} epochs, {took:.1f} s")
        return models.load_floats(path), record  # what is measured is what is kept

    @property
    def method(self) -> str:
        """How networks are certified, as `evaluate` takes it."""
        return ",".join(self.contender.certified_by)

    def row(self, trials: list[Trial], network: PixelNet, trained: Trained) -> CompareRow:
        """Evaluate the network and make the row."""
        file = self.folder / MODEL
        part = "test" if self.rules.limit is None else f"test{len(self.images.test)}"
        out = self.folder / f"{part}-{network.checksum(file)[:12]}"
        summary = evaluate(
            network, self.images.test, self.eps, out, file, method=self.method, radii=False,
            attacks=MEASURED_BY, show_progress=self.show,
        ).summary  # fmt: skip
        row = CompareRow(
            data=self.rules.data,
            eps=self.eps,
            shared=self.rules.shared,
            recipe=checksum(self.rules.recipe, self.contender.takes),
            method=self.contender.name,
            title=self.contender.title,
            source=self.contender.source,
            budget=self.rules.budget,
            seed=self.rules.seed,
            trials=trials,
            chosen=trained.setting,
            epochs=trained.epochs,
            seconds=trained.seconds,
            seconds_per_epoch=round(trained.seconds / trained.epochs, 4),
            memory_mb=trained.memory_mb,
            parameters=sum(weights.numel() for weights in network.parameters()),
            certified_by=self.method,
            n=summary["n"],
            clean=summary["clean"],
            pgd20=summary["attacks"]["pgd"],
            strongest=summary["robust"],
            certified=summary["certified"],
            certify_ms=round(1000 * summary["seconds"]["certify"] / summary["n"], 4),
            threads=torch.get_num_threads(),
            machine=in_words(),
            date=date.today().isoformat(),
        )
        measured = {"clean": row.clean, "pgd20": row.pgd20, "certified": row.certified}
        self.tell(f"  {percentages(measured)} ({row.n:,} test images)")
        return row


def _reset_peak() -> bool:
    """Reset the peak memory of this process; return False on systems that cannot, which are all except Linux."""
    try:
        _RESET.write_text("5")
    except OSError:
        return False
    return True


def _peak_mb() -> float | None:
    """Return the peak memory of this process since `_reset_peak`, in megabytes; None if the system does not tell."""
    try:
        lines = _STATUS.read_text().splitlines()
    except OSError:
        return None
    peak = next((line.split()[1] for line in lines if line.startswith("VmHWM:")), None)
    return None if peak is None else round(int(peak) * 1024 / 1e6, 1)
