"""An evaluation: batch by batch into a part file, then rows and summary. Stopped at any moment, it can go on."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from torch import Tensor

from ..attacks import attack
from ..data import Dataset
from ..files import remove_leftovers
from ..models import PixelNet
from . import gallery, invariants
from .finished import Finished
from .part import Done, Part, add_up
from .progress import Bar, busy
from .rows import examine
from .settings import BATCH, Settings, Shard, checksum, file_sha256, first_images
from .summary import Row


@dataclass(frozen=True)
class Evaluation:
    """What an evaluation came to.

    summary: of the whole; or of the shard, if others are missing (`waiting`: which, and why) or another process has put
    all together at the same moment. before: it was finished before this call, which did nothing.
    """

    summary: dict[str, Any]
    before: bool = False
    waiting: tuple[str, ...] = ()


def evaluate(
    network: PixelNet,
    dataset: Dataset,
    eps: str,
    out: Path,
    model_file: Path,
    *,
    split: str = "test",
    limit: int | None = None,
    method: str = "box",
    attacks: Sequence[str] = (),
    shard: Shard | None = None,
    batch: int = BATCH,
    fresh: bool = False,
    show_progress: bool = False,
) -> Evaluation:
    """Certify and attack the images of a data set, into rows.jsonl and summary.json in the folder `out`.

    model_file: where `network` was loaded from; split: which split `dataset` is; limit: only its first images; attacks:
    names from `linfdist.attacks.ATTACKS`; shard: only this part of the work. Whichever shard is finished last puts all
    of them together, if they are in the same folder. An evaluation that was stopped goes on where it was; one that is
    finished is left as it is; `fresh` begins anew. Other settings than those found in `out` are a ValueError. If a
    certificate and an attack contradict each other, `Violated` is raised and nothing is finished.
    """
    images = first_images(dataset, limit)
    settings = Settings(
        model_sha256=file_sha256(model_file),
        data=dataset.name,
        data_sha256=checksum(images),
        split=split,
        limit=None if images is dataset else limit,
        eps=eps,
        method=method,
        attacks=tuple(attacks),
        batch=batch,
    )
    run = _Run(network, images, settings, shard or Shard(), out, show_progress)
    out.mkdir(parents=True, exist_ok=True)
    with run.alone():
        if fresh:
            run.forget()
        elif (before := run.finished_before()) is not None:
            return before
        run.work()
        return run.finish()


class _Run:
    """An evaluation, or one shard of it, under way."""

    def __init__(
        self, network: PixelNet, images: Dataset, settings: Settings, shard: Shard, out: Path, show_progress: bool
    ) -> None:
        self.network, self.images, self.settings, self.shard, self.out = network, images, settings, shard, out
        self.show_progress = show_progress
        self.attacks = [attack(name) for name in settings.attacks]
        self.mine, self.whole = Finished(out, shard), Finished(out, Shard())
        self.part = Part(self.part_file(shard), settings, self.batches(shard))

    def part_file(self, shard: Shard) -> Path:
        return self.out / f"rows{shard.suffix}.jsonl.part"

    def batches(self, shard: Shard) -> dict[int, range]:
        """The indices of the images in each of a shard's batches."""
        n, size = len(self.images), self.settings.batch
        starts = range(0, n, size)
        return {
            k: range(starts[k], min(starts[k] + size, n)) for k in range(shard.number - 1, len(starts), shard.count)
        }

    @contextmanager
    def alone(self) -> Iterator[None]:
        """No other process may work on the same part."""
        try:
            with FileLock(self.out / f".rows{self.shard.suffix}.lock", timeout=0):
                yield
        except Timeout:
            raise ValueError(
                f"another process is evaluating {self._what()} into {self.out}: wait for it, or choose another --out"
            ) from None

    def forget(self) -> None:
        """Drop this part's work. Finished results of the whole stay until new ones replace them."""
        self.part.path.unlink(missing_ok=True)
        if self.shard.count > 1:
            self.mine.remove()

    def finished_before(self) -> Evaluation | None:
        """What there is, if nothing is left to do here. ValueError if it has other settings."""
        if self.part.path.exists():  # it was begun to replace what is finished
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
            place.check(summary)
            return Evaluation(summary, before=True) if place == self.whole else self.put_together(summary, before=True)
        if problems:
            raise ValueError(problems[0])
        return None

    def work(self) -> None:
        """All batches that are not done yet."""
        if self.part.path.exists():
            self.part.resume()
        else:
            self.part.start()
        total, done = sum(map(len, self.part.batches.values())), len(self.part.rows())
        with Bar(f"evaluating {self._what()}", total, done, self.show_progress) as bar:
            for batch in self.part.missing:
                indices = self.part.batches[batch]
                few = slice(indices.start, indices.stop)
                examined = examine(
                    self.network, self.images.images[few], self.images.labels[few], indices.start,
                    self.settings.eps, self.settings.method, self.attacks,
                )  # fmt: skip
                self.check(examined.rows, examined.attacked)
                self.part.add(batch, Done(examined.rows, examined.seconds))
                bar.advance(len(indices))

    def check(self, rows: Sequence[Row], attacked: dict[str, dict[int, Tensor]]) -> None:
        """`Violated` if rows contradict themselves, with the images concerned saved."""
        if found := invariants.violations(rows, self.settings.eps):
            self.refuse(found, attacked)

    def refuse(self, found: Sequence[invariants.Violation], attacked: dict[str, dict[int, Tensor]]) -> None:
        images = {violation.row["index"]: self.images.images[violation.row["index"]] for violation in found}
        raise invariants.Violated(found, invariants.save(found, self.out, images, attacked, self.settings.as_json()))

    def finish(self) -> Evaluation:
        """The finished files of this part; of the whole, if this was the last one."""
        if self.shard.count == 1:
            with self.merging():
                summary = self.finish_whole(self.part.rows(), self.part.seconds())
            self.part.path.unlink(missing_ok=True)
            return Evaluation(summary)
        summary = self.mine.write(self.part.rows(), self.settings, self.part.seconds(), self.images.classes)
        self.part.path.unlink(missing_ok=True)
        return self.put_together(summary, before=False)

    def merging(self) -> FileLock:
        """One process at a time puts shards together, and writes what is made of them."""
        return FileLock(self.out / ".merge.lock")

    def put_together(self, mine: dict[str, Any], before: bool) -> Evaluation:
        """Make the whole of all shards, if this was the last one."""
        with self.merging():
            if self.mine.summary() is None:  # another process has done so meanwhile
                return Evaluation(mine, before)
            waiting = [note for shard in self.shard.all if (note := self.not_ready(shard))]
            return Evaluation(mine, before, tuple(waiting)) if waiting else Evaluation(self.merge())

    def merge(self) -> dict[str, Any]:
        """The summary of the whole, whose files take the place of those of the shards."""
        rows: list[Row] = []
        times = []
        for shard in self.shard.all:
            place, summary = Finished(self.out, shard), Finished(self.out, shard).summary() or {}
            place.check(summary)
            indices = [index for batch in self.batches(shard).values() for index in batch]
            rows += place.rows(indices, self.settings.attacks)
            times.append(summary["seconds"])
        rows.sort(key=lambda row: row["index"])
        whole = self.finish_whole(rows, add_up(times))
        for shard in self.shard.all:
            self.part_file(shard).unlink(missing_ok=True)  # of a process that was killed just before it would do so
            Finished(self.out, shard).remove()
        return whole

    def not_ready(self, shard: Shard) -> str | None:
        """Why a shard cannot be merged yet."""
        summary = Finished(self.out, shard).summary()
        if summary is None:
            return str(shard)
        different = self.settings.differences(summary)
        return f"{shard} (there with other settings: {'; '.join(different)})" if different else None

    def finish_whole(self, rows: list[Row], seconds: dict[str, float]) -> dict[str, Any]:
        """Check everything once more, then replace the finished files."""
        self.check(rows, {})
        shown = self.make_gallery(rows) if self.attacks else None
        if shown is not None and (found := shown.violations()):
            self.refuse(found, {"smallest": shown.by_index()})
        self.whole.summary_file.unlink(missing_ok=True)  # it speaks of all these files
        remove_leftovers(self.out / gallery.FILE)
        if shown is None:
            (self.out / gallery.FILE).unlink(missing_ok=True)
        else:
            shown.save(self.out, self.images.classes)
        return self.whole.write(rows, self.settings, seconds, self.images.classes)

    def make_gallery(self, rows: Sequence[Row]) -> gallery.Gallery | None:
        """If there is anything to show."""
        with busy("searching the smallest perturbations of a few images", self.show_progress):
            return gallery.make(self.network, self.images, rows, self.settings.eps)

    def _what(self) -> str:
        part = "" if self.shard.count == 1 else f" {self.shard}"
        return f"{Path(self.settings.data).name} {self.settings.split}{part}"
