"""Work that is killed at random moments, then done again: it must end with the bytes of work that was left in peace.

Run as a program of its own (`python -m tools.soak_crashes --seconds 60`): it forks, which a process with threads cannot
do safely. Each job is done once undisturbed. Then, round after round, it is started in a new folder, killed by SIGKILL
at a random moment - a time, or just before or after a file is flushed to the disk or takes its name - started again,
killed again, and at last left to finish.
"""

import argparse
import contextlib
import hashlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from linfdist import data, models, recipes
from linfdist.evaluation import evaluate, gallery
from linfdist.exact import freeze
from linfdist.exact import save as save_exact
from linfdist.export import to_onnx, to_torch_export
from linfdist.report import write as write_report
from linfdist.training import train

TIMES = {"seconds", "cpu_seconds", "images_per_second"}  # differ from run to run
MOST_CALLS = 8  # of os.replace or os.fsync, after which to die
Job = Callable[[Path], None]


def jobs(base: Path) -> dict[str, Job]:
    """Return the jobs that are killed, by name; each is given the folder to work in.

    `base` holds the digits and a finished run.
    """
    digits, run = base / "data", base / "run"

    def exported(write: Callable[[Path], None], name: str) -> Job:
        def job(out: Path) -> None:
            out.mkdir(exist_ok=True)
            write(out / name)

        return job

    return {
        "train": lambda out: _train(out, digits),
        "evaluate": lambda out: _evaluate(run, digits, out),
        "data fetch": lambda out: void(data.fetch("digits", out)),
        "report": lambda out: void(write_report(run, out)),
        "export exact": exported(lambda path: save_exact(freeze(models.load_floats(run)), path), "exact.safetensors"),
        "export onnx": exported(lambda path: to_onnx(models.load_floats(run), path), "model.onnx"),
        "export torch": exported(lambda path: to_torch_export(models.load_floats(run), path), "model.pt2"),
    }


def void(_: object) -> None:
    """Drop a result."""


def _recipe() -> recipes.Recipe:
    return recipes.override(recipes.load("digits-quick"), ["width=12", "batch_size=128", "epochs=3"])


def _train(out: Path, digits: Path) -> None:
    train(_recipe(), out, data_dir=digits, resume=True, quiet=True, checkpoint_seconds=0)


def _evaluate(run: Path, digits: Path, out: Path) -> None:
    images = data.load("digits", "test", digits)
    evaluate(
        models.load_floats(run), images, "0.1", out, run / "model.safetensors", attacks=("pgd",), batch=8, limit=48
    )


def prepare(base: Path) -> None:
    """Fetch the digits, train and evaluate: what the jobs work on."""
    gallery.ROUNDS = 1
    data.fetch("digits", base / "data")
    _train(base / "run", base / "data")
    _evaluate(base / "run", base / "data", base / "run")


def content(folder: Path) -> dict[str, str]:
    """Return the sha256 of each file, times left out, by its name.

    Folders count too: nothing may be left lying about. Locks, which some versions of filelock leave, do not count.
    """
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_dir():
            found[name + "/"] = ""
        elif not name.endswith(".lock"):
            found[name] = hashlib.sha256(_without_times(path)).hexdigest()
    return found


def _without_times(path: Path) -> bytes:
    if path.name in ("metrics.jsonl", "summary.json"):
        lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
        rows = [json.loads(line) for line in lines]
        return json.dumps([{key: row[key] for key in row if key not in TIMES} for row in rows]).encode()
    return path.read_bytes()


def in_child(work: Callable[[], None], errors: Path, kill_after: float | None = None) -> int:
    """Do work in a forked process, kill it after so many seconds if it is not done, and return its wait status."""
    sys.stdout.flush()
    child = os.fork()
    if not child:
        code = 1
        try:
            with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
                work()
            code = 0
        except BaseException:
            errors.write_text(traceback.format_exc())
        finally:
            os._exit(code)
    if kill_after is not None:
        time.sleep(kill_after)
        os.kill(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1]


def die_at(name: str, count: int, after: bool) -> None:
    """Have this process kill itself at the so-manieth call of a function of `os`, before or after it does its work."""
    original, calls = getattr(os, name), 0

    def dying(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == count and after:
            original(*arguments, **options)
        if calls == count:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*arguments, **options)

    setattr(os, name, dying)


def disturbed(
    job: Job, out: Path, draw: random.Random, seconds: float, most: int, errors: Path
) -> tuple[int, list[str], int]:
    """Start a job and kill it, `most` times at most, then let it finish.

    Returns how often it was killed, at which moments it was meant to be, and the status of the last start.
    """
    kills, moments = 0, []
    for _ in range(draw.randint(1, most)):
        if draw.random() < 0.5:
            moment = draw.uniform(0.0, seconds)
            moments.append(f"after {moment:.4f} s")
            status = in_child(lambda: job(out), errors, moment)
        else:
            name, count, after = draw.choice(["replace", "fsync"]), draw.randint(1, MOST_CALLS), draw.random() < 0.5
            moments.append(f"{'after' if after else 'before'} call {count} of os.{name}")

            def work(name: str = name, count: int = count, after: bool = after) -> None:
                die_at(name, count, after)
                job(out)

            status = in_child(work, errors)
        kills += os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    return kills, moments, in_child(lambda: job(out), errors)


def soak(base: Path, names: list[str], seed: int, seconds: float, rounds: int | None, kills: int) -> dict[str, Any]:
    """Kill jobs in turn, for so many seconds or rounds; counts by job, and failures in words."""
    work = {name: job for name, job in jobs(base).items() if name in names}
    counts = {name: {"rounds": 0, "kills": 0} for name in work}
    failures: list[dict[str, Any]] = []
    whole, took = {}, {}
    for name, job in work.items():
        out, start = base / "undisturbed" / name, time.monotonic()
        out.parent.mkdir(exist_ok=True)
        job(out)  # in this process, so that all that is imported is there for the children
        took[name], whole[name] = time.monotonic() - start, content(out)
    draw, until, number = random.Random(seed), time.monotonic() + seconds, 0
    while time.monotonic() < until if rounds is None else number < rounds:
        number += 1
        for name, job in work.items():
            if rounds is None and time.monotonic() >= until:
                break
            out, errors = base / f"round-{number}" / name, base / "errors.txt"
            out.parent.mkdir(exist_ok=True)
            killed, moments, status = disturbed(job, out, draw, took[name], kills, errors)
            counts[name]["rounds"] += 1
            counts[name]["kills"] += killed
            found = content(out) if status == 0 else {}
            if found == whole[name]:
                shutil.rmtree(out)
                continue
            other = sorted(key for key in found.keys() | whole[name].keys() if found.get(key) != whole[name].get(key))
            error = errors.read_text() if status and errors.exists() else None
            errors.unlink(missing_ok=True)
            failures.append({"job": name, "moments": moments, "different": other, "error": error, "folder": str(out)})
    return {"jobs": counts, "failures": failures}


def main() -> int:
    parser = argparse.ArgumentParser(description="Kill jobs at random moments, do them again, compare.")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rounds", type=int, help="so many rounds, however long they take")
    parser.add_argument("--jobs", default=",".join(jobs(Path())), help="which, with commas")
    parser.add_argument("--kills", type=int, default=4, help="how often a job is killed at most, until it may finish")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="where to copy folders that differ")
    given = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="soak-", ignore_cleanup_errors=True) as folder:
        base = Path(folder)
        with contextlib.redirect_stdout(sys.stderr):
            prepare(base)
            result = soak(base, given.jobs.split(","), given.seed, given.seconds, given.rounds, given.kills)
        for number, failure in enumerate(result["failures"]):
            if given.keep is not None and Path(failure["folder"]).exists():
                kept = given.keep / f"crash-{given.seed}-{number}"
                failure["folder"] = str(shutil.copytree(failure["folder"], kept, dirs_exist_ok=True))
    print(json.dumps(result))
    return 1 if result["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())
