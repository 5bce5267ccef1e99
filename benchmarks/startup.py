"""What starting costs: `python -m benchmarks.startup`, in processor time, beside `import torch`."""

import json
import os
import platform
import resource
import statistics
import subprocess
import sys
from datetime import datetime, timezone
from functools import partial
from pathlib import Path

from linfdist.ops.machine import in_words

from . import parser, seconds_by_turn

LIMIT = 0.3  # seconds, of what must answer at once
COMMANDS = ("--version", "--help", "train --help", "info --short", "zoo list", "recipes list", "data list")
PROGRAM = "from linfdist.cli import main; main()"
TORCH = "import torch"
PROGRAMS = {
    "python": "",
    "import linfdist": "import linfdist",
    TORCH: TORCH,
    "import torch, first load": "import linfdist; linfdist.load('mnist-0.3')",
}
COMPLETION = {"_LINFDIST_COMPLETE": "complete_bash", "COMP_WORDS": "linfdist evaluate mn", "COMP_CWORD": "2"}


def children_seconds() -> float:
    """Return the processor time of all processes that were started and have ended, in the system included."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def python(*arguments: str, **environment: str) -> None:
    """Run a program in an interpreter of its own."""
    command = [sys.executable, "-c", *arguments]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env={**os.environ, **environment})


def measure(turns: int) -> dict[str, list[float]]:
    """Return the seconds of everything, turn by turn; the first turn, which fills caches, does not count."""
    runs = {name: partial(python, program) for name, program in PROGRAMS.items()}
    runs["completion"] = partial(python, PROGRAM, **COMPLETION)
    runs |= {command: partial(python, PROGRAM, *command.split()) for command in COMMANDS}
    return seconds_by_turn(runs, turns, children_seconds)


def rows(found: dict[str, list[float]]) -> list[dict[str, float | str]]:
    """Return medians, and medians of ratios that are formed within a turn."""
    ratios = {name: [a / b for a, b in zip(each, found[TORCH], strict=True)] for name, each in found.items()}
    return [
        {
            "what": name,
            "seconds": round(statistics.median(each), 3),
            "of_import_torch": round(statistics.median(ratios[name]), 3),
        }
        for name, each in found.items()
    ]


if __name__ == "__main__":
    options = parser(__doc__)
    options.add_argument("--json", type=Path, metavar="FILE", help="also write the rows and the machine there")
    given = options.parse_args()
    table = rows(measure(3 if given.quick else 9))
    print("| what | seconds | of `import torch` |\n|---|--:|--:|")
    for row in table:
        print(f"| {row['what']} | {row['seconds']:.2f} | {row['of_import_torch']:.2f} |")
    if given.json:
        today = datetime.now(timezone.utc).date().isoformat()
        machine = {"machine": in_words(), "python": platform.python_version()}
        given.json.write_text(json.dumps({**machine, "date": today, "limit": LIMIT, "rows": table}, indent=1) + "\n")
