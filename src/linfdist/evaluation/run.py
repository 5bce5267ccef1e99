"""Evaluate a network: batch by batch into a part file, then rows and summary. Stopped at any moment, it resumes."""

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock
from torch import Tensor

from ..attacks import attack
from ..certificates import on_device
from ..data import Dataset
from ..data.samples import as_labels, check_labels, check_range
from ..eps import Eps, as_text, parse_eps
from ..errors import described
from ..files import alone, remove_leftovers
from ..models import Network
from ..models.base import taken
from ..runs.folder import GALLERY, Gallery, Results
from ..runs.rows import Row, Violation, certified_at, summarise, violations
from . import gallery, violated
from .batch import Certifiers, evaluate_batch
from .progress import Bar, busy
from .settings import BATCH, Done, EvaluationSettings, Part, Shard, add_up, checksum, first_images, parse_methods


@dataclass(frozen=True)
class Evaluation:
    """The outcome of an evaluation.

    summary: of all images; of this shard alone if other shards are missing (`waiting` says which, and why), or if
    another process has merged all shards at the same moment. rows: one for each of these images. before: whether the
    evaluation was finished before this call, which then did nothing.
    """

    summary: dict[str, Any]
    rows: tuple[Row, ...] = ()
    before: bool = False
    waiting: tuple[str, ...] = ()

    def certified(self, eps: Eps) -> float:
        """Return the certified accuracy at any radius, in percent, counted from the radii of the rows.

        Nothing is computed again. With `radii=False`, rows say little about larger radii than that of the evaluation.
        """
        count = certified_at(self.rows, parse_eps(eps), parse_eps(self.summary["eps"]))
        return 100 * count / len(self.rows)


def evaluate(
    network: object,
    data: Any,
    eps: Eps,
    out: str | os.PathLike[str] | None = None,
    model_file: Path | None = None,
    *,
    model: str | None = None,
    split: str = "test",
    limit: int | None = None,
    method: str = "box",
    radii: bool = True,
    attacks: Sequence[str] = (),
    shard: Shard | None = None,
    batch: int = BATCH,
    fresh: bool = False,
    show_progress: bool = False,
    device: str | torch.device | None = None,
) -> Evaluation:
    """Certify and attack the images of a data set, and write rows.jsonl and summary.json into the folder `out`.

    network: any that `certify` accepts. data: one of `linfdist.data.load`; or images and labels in a tuple
    (images, labels), of tensors or arrays, in a torch `Dataset` or a `DataLoader`, read once. Images may be arranged as
    in `certify`; bytes become pixels, floats in [0, 1] are rounded to the network's precision. Labels are whole
    numbers, or names of the network's classes. eps: text such as "8/255" or "0.3", meaning exactly that; a fraction;
    or another number, meaning its exact value. out: a folder for rows and summary; without one, nothing is kept but
    what is returned.

    model_file: where it was loaded from; without it, `model_sha256` is that of the
    network's configuration and weights. model: its name or path as a user gives it, for the commands that repeat the
    evaluation. split: which split `data` is. limit: take only the first images. method: of `certify`; of several,
    such as "crown,fast-lin", the best one for each image counts. radii: if False, images are certified at eps alone,
    and `radius` is what that proves. Costly methods then run only on images that are correct, unbroken and not yet
    certified, except in the first batch, where every proof and every attack runs, so that contradictions can show.
    There is no gallery then, because the most robust images are unknown. attacks: names from
    `linfdist.attacks.ATTACKS`. shard: do only this part of the work; whichever shard is finished last merges all of
    them, if they are in the same folder. fresh: begin anew. device: where a float network is to compute, see
    `machine.choose_device`; by default where it is. Rows are about the network as executed there.

    An evaluation that was stopped is resumed; one that is finished is left as it is. Raises ValueError if `out` holds
    results of other settings. If a certificate and an attack contradict each other, `Violated` is raised and nothing is
    finished.

    Example:
        >>> result = ld.evaluate(ld.load("mnist-0.3"), ld.data.load("mnist", split="test"), "0.3", limit=1000)
        >>> result.summary["certified"], result.certified("0.2")
    """
    net, dataset = _opened(on_device(network, device), data)
    images = first_images(dataset, limit)
    settings = EvaluationSettings(
        model_sha256=net.checksum(model_file),
        data=dataset.name,
        data_sha256=checksum(images),
        split=split,
        limit=None if images is dataset else limit,
        eps=as_text(eps),
        method=method,
        attacks=tuple(attacks),
        batch=batch,
        device=net.device.type,
        radii=radii,
    )
    parse_methods(method)
    for few in images.images.split(BATCH):
        net.check_images(net.from_bytes(few))
    with _folder(out) as folder:
        evaluator = _Evaluator(net, images, settings, shard or Shard(), folder, show_progress, model)
        folder.mkdir(parents=True, exist_ok=True)
        with evaluator.alone():
            if fresh:
                evaluator.forget()
            elif (before := evaluator.finished_before()) is not None:
                return before
            evaluator.work()
            return evaluator.finish()


def _opened(network: object, data: Any) -> tuple[Network, Dataset]:
    """Return the network, and the data as a data set: bytes or floats (N, C, H, W), whole numbers as labels."""
    net, images, labels, _ = taken(network, data, "data")
    if labels is None:
        raise TypeError(f"data: {described(data)} has no labels: give a tuple (images, labels), or a data set of pairs")
    if images.dim() != 4:
        shapes = " or ".join(f"(N, {c}, {h}, {w})" for c, h, w in net.shapes)
        raise ValueError(f"data: images must be {shapes}, got {tuple(images.shape)}")
    check_range(images, "data")
    numbers = as_labels(labels, net.class_names, "labels").cpu()
    check_labels(net.classes, numbers, len(images), "labels")
    numbers = numbers.to(torch.int64)
    if isinstance(data, Dataset):
        return net, replace(data, images=images.cpu(), labels=numbers)
    classes = net.class_names or tuple(map(str, range(net.classes)))
    return net, Dataset("in-memory", _bytes_of(net, images.cpu()), numbers, classes)


def _bytes_of(network: Network, images: Tensor) -> Tensor:
    """Return the bytes that floats were made from, if the network gets the same inputs from them; else the floats."""
    if images.dtype == torch.uint8 or network.exact:
        return images
    images = images.float() if images.dtype == torch.bfloat16 else images  # NumPy knows no bfloat16
    found = (images.double() * 255).round().to(torch.uint8)
    same = all(
        torch.equal(network.from_bytes(few), network.from_bytes(floats))
        for few, floats in zip(found.split(BATCH), images.split(BATCH), strict=True)
    )
    return found if same else images


@contextmanager
def _folder(out: str | os.PathLike[str] | None) -> Iterator[Path]:
    """Yield the named folder, or a temporary one, which is kept only if it is needed to report a bug."""
    if out is not None:
        yield Path(out)
        return
    folder = Path(tempfile.mkdtemp(prefix="linfdist-"))
    try:
        yield folder
    except violated.Violated:
        raise
    except BaseException:
        shutil.rmtree(folder)
        raise
    shutil.rmtree(folder)


class _Evaluator:
    """An evaluation under way, or one shard of it."""

    def __init__(
        self,
        network: Network,
        images: Dataset,
        settings: EvaluationSettings,
        shard: Shard,
        out: Path,
        show_progress: bool,
        model: str | None,
    ) -> None:
        self.network, self.images, self.settings, self.shard, self.out = network, images, settings, shard, out
        self.show_progress, self.model, self.certifiers = show_progress, model, Certifiers(network)
        self.attacks = [attack(name) for name in settings.attacks]
        self.mine, self.whole = Results(out, shard.suffix), Results(out)
        self.part = Part(self.mine.part_file, settings, self.batches(shard))

    def batches(self, shard: Shard) -> dict[int, range]:
        """Return the indices of the images in each of a shard's batches."""
        n, size = len(self.images), self.settings.batch
        starts = range(0, n, size)
        return {
            k: range(starts[k], min(starts[k] + size, n)) for k in range(shard.number - 1, len(starts), shard.count)
        }

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Make sure that no other process works on the same part."""
        doing = f"evaluates {self._what()} into {self.out}"
        with alone(self.out / f".rows{self.shard.suffix}.lock", doing, "wait for it, or choose another --out"):
            yield

    def forget(self) -> None:
        """Drop this part's work. Finished results of the whole stay until new ones replace them."""
        self.part.path.unlink(missing_ok=True)
        if self.shard.count > 1:
            self.mine.remove()

    def finished_before(self) -> Evaluation | None:
        """Return the results if nothing is left to do, else None. Raises ValueError if they have other settings."""
        if self.part.path.exists():  # an evaluation that is to replace the finished one
            return None
        problems = []
        for place in dict.fromkeys((self.whole, self.mine)):
            summary = place.summary()
            if summary is None:
                continue
            if different := self.settings.differences(summary):
                problems.append(
                    f"{place.summary_file} is of an evaluation with other settings ({'; '.join(different)}): "
                    "--fresh replaces it, or choose another --out"
                )
                continue
            found = Evaluation(summary, tuple(place.checked_rows(summary)), before=True)
            return found if place == self.whole else self.merge_if_last(found)
        if problems:
            raise ValueError(problems[0])
        return None

    def work(self) -> None:
        """Do all batches that are not done yet."""
        if self.part.path.exists():
            self.part.resume()
        else:
            self.part.start()
        total, done = sum(map(len, self.part.batches.values())), len(self.part.rows())
        with Bar(f"evaluating {self._what()}", total, done, self.show_progress) as bar:
            for batch in self.part.missing:
                indices = self.part.batches[batch]
                few = slice(indices.start, indices.stop)
                found = evaluate_batch(
                    self.certifiers, self.images.images[few], self.images.labels[few], indices.start,
                    self.settings.radius, self.settings.method, self.attacks, self.settings.radii,
                    spare=not self.settings.radii and batch > 0,
                )  # fmt: skip
                self.check(found.rows, found.attacked)
                self.part.add(batch, Done(found.rows, found.seconds))
                bar.advance(len(indices))

    def check(self, rows: Sequence[Row], attacked: dict[str, dict[int, Tensor]]) -> None:
        """Raise `Violated` if rows contradict themselves, after saving the images concerned."""
        if found := violations(rows, self.settings.eps):
            self.refuse(found, attacked)

    def refuse(self, found: Sequence[Violation], attacked: Mapping[str, Mapping[int, Tensor]]) -> None:
        """Save the images concerned and raise `Violated`."""
        images = {violation.row.index: self.images.images[violation.row.index] for violation in found}
        raise violated.Violated(found, violated.save(found, self.out, images, attacked, self.settings.as_json()))

    def finish(self) -> Evaluation:
        """Write the finished files of this part, or those of the whole if this was the last part."""
        if self.shard.count == 1:
            with self.merging():
                whole = self.finish_whole(self.part.rows(), self.part.seconds())
            self.part.path.unlink(missing_ok=True)
            return whole
        rows = self.part.rows()
        summary = self.write(self.mine, rows, self.part.seconds(), {"shard": str(self.shard)})
        self.part.path.unlink(missing_ok=True)
        return self.merge_if_last(Evaluation(summary, tuple(rows)))

    def merging(self) -> FileLock:
        """Return the lock under which one process at a time merges shards and writes what is made of them."""
        return FileLock(self.out / ".merge.lock")

    def merge_if_last(self, mine: Evaluation) -> Evaluation:
        """Merge all shards, if this was the last one."""
        with self.merging():
            if self.mine.summary() is None:  # another process has done so meanwhile
                return mine
            waiting = [note for shard in self.shard.all if (note := self.not_ready(shard))]
            return replace(mine, waiting=tuple(waiting)) if waiting else self.merge()

    def merge(self) -> Evaluation:
        """Replace the files of the shards by those of the whole."""
        rows: list[Row] = []
        times = []
        for shard in self.shard.all:
            place = Results(self.out, shard.suffix)
            summary = place.summary() or {}
            indices = [index for batch in self.batches(shard).values() for index in batch]
            rows += place.rows(summary, indices, self.settings.attacks)
            times.append(summary["seconds"])
        rows.sort(key=lambda row: row.index)
        whole = self.finish_whole(rows, add_up(times))
        for shard in self.shard.all:
            place = Results(self.out, shard.suffix)
            place.part_file.unlink(missing_ok=True)  # of a process that was killed just before it would do so
            place.remove()
        return whole

    def not_ready(self, shard: Shard) -> str | None:
        """Return why a shard cannot be merged yet, or None if it can."""
        summary = Results(self.out, shard.suffix).summary()
        if summary is None:
            return str(shard)
        different = self.settings.differences(summary)
        return f"{shard} (there with other settings: {'; '.join(different)})" if different else None

    def finish_whole(self, rows: list[Row], seconds: dict[str, float]) -> Evaluation:
        """Check everything once more, then replace the finished files."""
        self.check(rows, {})
        pictures = self.images.images.dtype == torch.uint8
        shown = self.make_gallery(rows) if self.attacks and self.settings.radii and pictures else None
        if shown is not None and (found := shown.violations()):
            images = {row.index: image for row, image in zip(shown.rows, shown.attacked, strict=True)}
            self.refuse(found, {"smallest": images})
        self.whole.summary_file.unlink(missing_ok=True)  # it speaks of all the files that change now
        remove_leftovers(self.out / GALLERY)
        if shown is None:
            (self.out / GALLERY).unlink(missing_ok=True)
        else:
            shown.save(self.out / GALLERY)
        return Evaluation(self.write(self.whole, rows, seconds, {}), tuple(rows))

    def write(
        self, place: Results, rows: Sequence[Row], seconds: Mapping[str, float], more: Mapping[str, str]
    ) -> dict[str, Any]:
        """Write rows and summary, and return the summary."""
        counted = summarise(rows, self.settings.eps, self.settings.attacks)
        times = {name: round(value, 3) for name, value in seconds.items()}
        entries = {"classes": list(self.images.classes), "seconds": times, **more}
        if self.model is not None:
            entries["model"] = self.model
        if self.network.domain is not None:
            entries["domain_sha256"] = self.network.domain
        return place.write(rows, self.settings.as_json() | counted | entries)

    def make_gallery(self, rows: Sequence[Row]) -> Gallery | None:
        """Make the gallery of the whole; None if there is nothing to show."""
        with busy("searching the smallest perturbations of a few images", self.show_progress):
            return gallery.make(self.network, self.images, rows, self.settings.radius)

    def _what(self) -> str:
        part = "" if self.shard.count == 1 else f" {self.shard}"
        return f"{Path(self.settings.data).name} {self.settings.split}{part}"
