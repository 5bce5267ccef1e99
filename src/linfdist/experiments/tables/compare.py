"""Run a comparison: each contender that has no row yet, one after the other."""

from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from ... import data
from ...files import alone
from ...runs.folder import MODEL
from ...runs.records import append_records
from ...training import Diverged
from .contenders import Contender, Task, chosen
from .entry import Entry, Images
from .rows import CompareRow, check_rows_file, plain, read_compare_rows
from .rules import Rules, checksum, rounded_up_time, time_text
from .trials import subset, without_held_out


def run(
    rules: Rules,
    names: Sequence[str],
    out: Path,
    rows_file: Path,
    data_dir: Path | None = None,
    tell: Callable[[str], None] = lambda text: None,
    show: bool = False,
) -> list[CompareRow]:
    """Compare the named methods, or all; return every row under these rules, those of other methods included.

    Every contender has a folder in `out`. Finished work in it is not repeated; a training that was stopped starts
    again. Raises ValueError, before anything is trained, that names the contenders whose budget is too small.
    """
    wanted = chosen(names, rules.trials)
    folder = out / rules.name
    folder.mkdir(parents=True, exist_ok=True)
    check_rows_file(rows_file, "--rows or --out")
    with alone(folder / ".lock", f"compares into {folder}", "wait for it, or choose another --out"):
        images = load_images(rules, data_dir)
        done = {row.method for row in read_compare_rows(rows_file) if _fits(row, rules, images)}
        left = [each for each in wanted if each.name not in done]
        _run_each(left, rules, images, folder, rows_file, tell, show)
    return [row for row in read_compare_rows(rows_file) if _fits(row, rules, images)]


def load_images(rules: Rules, data_dir: Path | None = None) -> Images:
    """Load the images of all steps of a comparison."""
    whole = Task(data.load(rules.data, "train", data_dir), data.info(rules.data), rules.recipe, rules.seed)
    test = data.load(rules.data, "test", data_dir)
    first = torch.arange(min(len(test), rules.limit or len(test)))
    return Images(*without_held_out(whole), whole, subset(test, first))


def _fits(row: CompareRow, rules: Rules, images: Images) -> bool:
    """Return whether a row follows these rules, with the settings and certificates that its contender has now."""
    contender = next((each for each in chosen([], 1) if each.name == row.method), None)
    if contender is None or row.certified_by != ",".join(contender.certified_by):
        return False
    tried = [trial.setting for trial in row.trials] or [row.chosen]
    if tried != [plain(each) for each in contender.settings[: rules.trials]]:
        return False
    if row.recipe != checksum(rules.recipe, contender.takes):
        return False
    mine = (row.data, row.shared, row.budget, row.tried, row.seed, row.n)
    return mine == (rules.data, rules.shared, rules.budget, rules.trials, rules.seed, len(images.test))


def _run_each(
    left: Sequence[Contender],
    rules: Rules,
    images: Images,
    folder: Path,
    rows_file: Path,
    tell: Callable[[str], None],
    show: bool,
) -> None:
    own = {each.name: folder / f"{each.name}-{checksum(rules.recipe, each.takes)}" for each in left}
    entries = [Entry(each, rules, images, own[each.name], tell, show) for each in left]
    if len(entries) > 1:
        tell(
            f"{len(entries)} methods, {time_text(len(entries) * rules.budget)} of training in all, and their "
            "evaluation; first, a few steps of each are timed"
        )
    _check_budget([entry for entry in entries if not (entry.folder / MODEL).exists()], rules, tell)
    problems = []
    for number, entry in enumerate(entries, start=1):
        tell(f"{number} of {len(entries)}: {entry.contender.title} ({entry.contender.name})")
        try:
            append_records(rows_file, [entry.run().model_dump(exclude_none=True)])
        except Diverged as error:  # one diverged training must not stop the others
            problems.append(f"{entry.contender.name}: {error}")
            tell(f"  {error}")
    if problems:
        raise Diverged("; ".join(problems), 0)


def _check_budget(entries: Sequence[Entry], rules: Rules, tell: Callable[[str], None]) -> None:
    """Time an epoch of each entry and report it at once.

    Raises ValueError if the budget is too short for one epoch of an entry, or for a tenth of an epoch in each trial.
    """
    needs = {}
    for entry in entries:
        contender, seconds = entry.contender, entry.epoch_seconds(0)
        needs[contender.name] = rules.needed(seconds)
        tell(f"  {contender.title} ({contender.name}): about {rounded_up_time(seconds)} per epoch")
    late = {name: needed for name, needed in needs.items() if needed > rules.budget}
    if late:
        each = ", ".join(f"{name} {rounded_up_time(needed)}" for name, needed in late.items())
        trials = "" if rules.trials == 1 else f" and {rules.trials} trials"
        raise ValueError(
            f"budget = {time_text(rules.budget)}: is too small for one epoch{trials}; needed are at least: {each}. "
            "Give more time, or leave these out (--methods)"
        )
