"""Try for a while to break what the package promises, and count: `python -m tools.soak --minutes 60 --seed 0`.

Four parts share the time. Certificates: random networks and images (`tools.soak_cases`) are certified, then attacked
within what was proved (`tools.soak_certificates`, and `tools.soak_estimator` for tables of numbers). Crashes: train,
evaluate, data fetch, report and export are killed at random moments and done again (`tools.soak_crashes`). Files: files
of every kind are changed at every depth, and must be read or refused (`tools.soak_files`). Memory: a thousand calls of
`certify` must not make the process grow.

It stops by itself, prints all counts as a table, and exits with 1 if anything failed. soak.json has the counts; while
certificates are attacked, those so far.
Ctrl-C ends it early: what was done until then is written and printed all the same. What failed is kept beside soak.json
with all that is needed to see it again.
"""

import argparse
import contextlib
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch

import linfdist as ld

from .soak_cases import KINDS, Case, make_case
from .soak_certificates import run_case, save_failure
from .soak_estimator import run_estimator
from .soak_files import kinds as files_of_all_kinds
from .soak_files import try_files

PARTS = ("memory", "crashes", "files", "certificates")
CRASHES, FILES, MEMORY = 0.3, 0.1, 0.1  # parts of the time; certificates have the rest
ESTIMATOR = 16  # every so-manieth case is one of the estimator
EVERY = 30  # seconds between two files of counts
CALLS = 1000  # of certify, for the memory
WARM = 100  # calls before the first look at the memory
MOST_GROWTH = 64 * 2**20  # bytes
PAGE = 4096


@dataclass
class Soak:
    """What has been done so far, and what has failed."""

    seed: int
    out: Path
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    failures: list[dict[str, Any]] = field(default_factory=list)
    commit: str = field(default_factory=lambda: commit())  # it may have changed by the end
    write: Callable[[], object] = lambda: None  # puts the counts so far into a file

    def certificates(self, until: float) -> None:
        """Certify and attack random cases."""
        total = Counter({"networks": 0})
        kinds: Counter[str] = Counter(dict.fromkeys((*KINDS, "estimator"), 0))
        self.counts["certificates"], self.counts["certificates attacked, by kind"] = total, kinds
        seed, written = self.seed * 10**6, time.monotonic()
        while time.monotonic() < until:
            self.one_case(seed, total, kinds)
            seed += 1
            if time.monotonic() > written + EVERY:
                self.write()
                written = time.monotonic()

    def one_case(self, seed: int, total: Counter[str], kinds: Counter[str]) -> None:
        """Run the case of one seed. An error is a failure too: every network that is drawn can be certified."""
        case: Case | None = None
        again = f"python -m tools.soak --case {seed}"
        try:
            if seed % ESTIMATOR == 0:
                found = run_estimator(seed)
            else:
                case = make_case(seed)
                found = run_case(case)
        except Exception as error:
            about = case.about if case else {}
            self.failures.append({"part": "certificates", "again": again, "about": about, "error": repr(error)})
            return
        total.update(found.counts)
        kinds[case.about["kind"] if case else "estimator"] += found.counts["certificates attacked"]
        if found.broken:
            what: dict[str, Any] = {"part": "certificates", "again": again, "broken": sorted(found.broken)}
            if case:
                what |= {"about": case.about, "file": str(save_failure(case, found, self.out))}
            self.failures.append(what)

    def files(self, seconds: float) -> None:
        """Change files of every kind, and read them."""
        counts: Counter[str] = Counter()
        self.counts["changed files"] = counts
        with tempfile.TemporaryDirectory(prefix="soak-") as folder:
            with contextlib.redirect_stdout(sys.stderr):
                files = files_of_all_kinds(Path(folder))
            seed, until = self.seed * 10**6, time.monotonic() + seconds
            while time.monotonic() < until:
                wrong = try_files(files, seed, counts)
                seed += 1
                if wrong is not None:
                    file = self.out / f"file-{seed}.bin"
                    file.write_bytes(bytes.fromhex(wrong.pop("content")))
                    self.failures.append({"part": "files", **wrong, "file": str(file)})

    def crashes(self, seconds: float) -> None:
        """Kill and repeat, in a process of its own, because it forks."""
        command = [sys.executable, "-W", "ignore", "-m", "tools.soak_crashes", "--seconds", f"{seconds:.1f}"]
        command += ["--seed", str(self.seed), "--keep", str(self.out)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        try:
            output, errors = process.communicate()
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
        try:
            result = json.loads(output)
        except ValueError:
            self.failures.append({"part": "crashes", "error": errors[-2000:]})
            return
        for name, counted in result["jobs"].items():
            self.counts[f"killed: {name}"] = counted
        self.failures += [{"part": "crashes", **each} for each in result["failures"]]

    def memory(self, until: float) -> None:
        """Call certify a thousand times, or for as long as there is time, and see how much the process has grown."""
        torch.manual_seed(self.seed)
        networks = [
            ld.models.DistNet((1, 8, 8), 10, 64, 3, [0.3], 0.31).eval(),
            ld.models.DistNetMLP((1, 8, 8), 10, 64, 2, [0.3], 0.31, head=16).eval(),
        ]
        x = torch.rand(32, 1, 8, 8)
        counts = self.counts["memory"] = {"calls of certify": 0, "kilobytes grown": 0}
        before = resident()
        for call in range(CALLS):
            if time.monotonic() > until and call > WARM:
                break
            ld.certify(networks[call % 2], x, "0.05", radii=False)
            if call == WARM:
                before = resident()
            counts["calls of certify"] = call + 1
        grown = resident() - before
        counts["kilobytes grown"] = grown // 1024
        if grown > MOST_GROWTH:
            self.failures.append({"part": "memory", "grown": grown, "allowed": MOST_GROWTH})

    def as_json(self, given: argparse.Namespace, seconds: float, stopped: bool) -> dict[str, Any]:
        """Return all that is known, with the command, the machine and the date."""
        return {
            "command": f"python -m tools.soak --minutes {given.minutes:g} --seed {given.seed}", "parts": given.parts,
            "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "machine": {
                "system": platform.platform(), "processor": processor(), "cores": os.cpu_count(),
                "python": platform.python_version(), "torch": torch.__version__, "linfdist": ld.__version__,
            },
            "commit": self.commit, "seconds": round(seconds, 1), "stopped_early": stopped, "counts": self.counts,
            "failures": self.failures,
        }  # fmt: skip


def resident() -> int:
    """Return how many bytes of memory this process occupies."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE
    except OSError:  # not Linux: the most it has ever occupied grows as well
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def processor() -> str:
    """Return the name of the processor, if the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def commit() -> str:
    """Return the commit of the repository, "unknown" outside of one."""
    asked = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return asked.stdout.strip() or "unknown"


def table(result: dict[str, Any]) -> str:
    """Return the counts as lines of text."""
    lines = []
    for part, counts in result["counts"].items():
        for name, count in counts.items():
            lines.append(f"{part + ': ' + name:<68}{count:>12,}")
    early = " (stopped early)" if result["stopped_early"] else ""
    lines.append(f"{'failures':<68}{len(result['failures']):>12,}")
    return "\n".join([*lines, f"{result['seconds']:.0f} seconds{early}, commit {result['commit'][:12]}"])


def soak(given: argparse.Namespace) -> int:
    """Do all parts and return the exit code."""
    given.out.mkdir(parents=True, exist_ok=True)
    state, start, seconds = Soak(given.seed, given.out), time.monotonic(), 60 * given.minutes
    stopped = False

    def write() -> dict[str, Any]:
        result = state.as_json(given, time.monotonic() - start, stopped)
        (given.out / "soak.json").write_text(json.dumps(result, indent=2) + "\n")
        return result

    state.write = write
    try:
        if "memory" in given.parts:
            state.memory(start + MEMORY * seconds)
        if "crashes" in given.parts and hasattr(os, "fork"):
            state.crashes(CRASHES * seconds)
        if "files" in given.parts:
            state.files(FILES * seconds)
        if "certificates" in given.parts:
            state.certificates(max(start + seconds, time.monotonic() + 1))
    except KeyboardInterrupt:
        stopped = True
    result = write()
    print(table(result))
    for failure in state.failures:
        print(f"failure: {json.dumps(failure)}", file=sys.stderr)
    print(f"written: {given.out / 'soak.json'}")
    return 1 if state.failures else 130 if stopped else 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Try for a while to break what the package promises, and count.")
    parser.add_argument("--minutes", type=float, default=60.0, help="how long, about")
    parser.add_argument("--seed", type=int, default=0, help="another seed, other networks and moments")
    parser.add_argument("--out", type=Path, default=Path("build/soak"), help="folder for soak.json and failures")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="only some of the parts")
    parser.add_argument("--case", type=int, help="only the certificates of this one seed, as a failure names it")
    given = parser.parse_args()
    if given.case is None:
        return soak(given)
    if given.case % ESTIMATOR == 0:
        found = run_estimator(given.case)
        print(json.dumps({"counts": found.counts, "broken": sorted(found.broken)}, indent=2))
        return 1 if found.broken else 0
    case = make_case(given.case)
    found = run_case(case)
    print(json.dumps({"about": case.about, "counts": found.counts, "broken": sorted(found.broken)}, indent=2))
    if found.broken:
        given.out.mkdir(parents=True, exist_ok=True)
        print(f"written: {save_failure(case, found, given.out)}")
    return 1 if found.broken else 0


if __name__ == "__main__":
    sys.exit(main())
