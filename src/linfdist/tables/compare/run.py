"""Run a comparison: each contender that has no row yet, one after the other."""

from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryFile

import torch
from filelock import FileLock, Timeout

from ... import data
from ...data import Dataset
from ...data.samples import spread_out
from ...runs.folder import MODEL
from ...runs.records import append_records
from ...training import Diverged
from .bout import Bout, Images
from .contenders import Contender, Lesson, chosen
from .rows import CompareRow, plain, read_compare_rows
from .terms import HELD_OUT, Terms, checksum, rounded_up_time, time_text


def run(
    terms: Terms,
    names: Sequence[str],
    out: Path,
    rows_file: Path,
    data_dir: Path | None = None,
    tell: Callable[[str], None] = lambda text: None,
    show: bool = False,
) -> list[CompareRow]:
    """Compare the methods of these names, or all; return the rows under these terms, of all methods there are.

    Every contender has a folder in `out`; what is finished there is not done again, and a training that was stopped is
    begun anew. ValueError, before anything is trained, names those for whom the budget is too small.
    """
    wanted = chosen(names, terms.trials)
    folder = out / terms.name
    folder.mkdir(parents=True, exist_ok=True)
    _check_writable(rows_file)
    try:
        with FileLock(folder / ".lock", timeout=0):
            images = load_images(terms, data_dir)
            done = {row.method for row in read_compare_rows(rows_file) if _fits(row, terms, images)}
            left = [each for each in wanted if each.name not in done]
            _run_each(left, terms, images, folder, rows_file, tell, show)
    except Timeout:
        raise ValueError(f"another process compares into {folder}: wait for it, or choose another --out") from None
    return [row for row in read_compare_rows(rows_file) if _fits(row, terms, images)]


def _check_writable(rows_file: Path) -> None:
    """Find out before hours of training, and not after; whatever other processes write there is left alone."""
    try:
        rows_file.parent.mkdir(parents=True, exist_ok=True)
        with open(rows_file, "ab") if rows_file.exists() else TemporaryFile(dir=rows_file.parent):
            pass
    except OSError as error:
        raise ValueError(f"{rows_file} cannot be written ({error.strerror}): choose another --rows or --out") from None


def load_images(terms: Terms, data_dir: Path | None = None) -> Images:
    """Load the images; those that are held out are spread over the training set."""
    train, info, recipe = data.load(terms.data, "train", data_dir), data.info(terms.data), terms.recipe
    test = data.load(terms.data, "test", data_dir)
    held = min(HELD_OUT, len(train) // 7)
    out = torch.zeros(len(train), dtype=torch.bool)
    out[spread_out(held, len(train))] = True
    kept = Lesson(_some(train, ~out), info, recipe, terms.seed)
    first = torch.arange(min(len(test), terms.limit or len(test)))
    return Images(kept, _some(train, out), Lesson(train, info, recipe, terms.seed), _some(test, first))


def _some(dataset: Dataset, which: torch.Tensor) -> Dataset:
    return Dataset(dataset.name, dataset.images[which], dataset.labels[which], dataset.classes)


def _fits(row: CompareRow, terms: Terms, images: Images) -> bool:
    """Whether a row is of these terms, and of what its contender tries and is certified by today."""
    contender = next((each for each in chosen([], 1) if each.name == row.method), None)
    if contender is None or row.certified_by != ",".join(contender.certified_by):
        return False
    tried = [trial.setting for trial in row.trials] or [row.chosen]
    if tried != [plain(each) for each in contender.settings[: terms.trials]]:
        return False
    if row.recipe != checksum(terms.recipe, contender.takes):
        return False
    mine = (row.data, row.shared, row.budget, row.tried, row.seed, row.n)
    return mine == (terms.data, terms.shared, terms.budget, terms.trials, terms.seed, len(images.test))


def _run_each(
    left: Sequence[Contender],
    terms: Terms,
    images: Images,
    folder: Path,
    rows_file: Path,
    tell: Callable[[str], None],
    show: bool,
) -> None:
    own = {each.name: folder / f"{each.name}-{checksum(terms.recipe, each.takes)}" for each in left}
    bouts = [Bout(each, terms, images, own[each.name], tell, show) for each in left]
    if len(bouts) > 1:
        tell(
            f"{len(bouts)} methods, {time_text(len(bouts) * terms.budget)} of training in all, and their evaluation; "
            "first, a few steps of each are timed"
        )
    _check_budget([bout for bout in bouts if not (bout.folder / MODEL).exists()], terms, tell)
    problems = []
    for number, bout in enumerate(bouts, start=1):
        tell(f"{number} of {len(bouts)}: {bout.contender.title} ({bout.contender.name})")
        try:
            append_records(rows_file, [bout.run().model_dump(exclude_none=True)])
        except Diverged as error:  # the others are not to wait for this one
            problems.append(f"{bout.contender.name}: {error}")
            tell(f"  {error}")
    if problems:
        raise Diverged("; ".join(problems), 0)


def _check_budget(bouts: Sequence[Bout], terms: Terms, tell: Callable[[str], None]) -> None:
    """Time each of them and tell its pace at once; ValueError if somebody could not train for one epoch, or try a
    setting for a tenth of one.
    """
    needs = {}
    for bout in bouts:
        needs[bout.contender.name] = terms.needed(bout.pace(0))
        tell(f"  {bout.contender.title} ({bout.contender.name}): about {rounded_up_time(bout.pace(0))} per epoch")
    late = {name: needed for name, needed in needs.items() if needed > terms.budget}
    if late:
        each = ", ".join(f"{name} {rounded_up_time(needed)}" for name, needed in late.items())
        trials = "" if terms.trials == 1 else f" and {terms.trials} trials"
        raise ValueError(
            f"budget = {time_text(terms.budget)}: is too small for one epoch{trials}; needed are at least: {each}. "
            "Give more time, or leave these out (--methods)"
        )
