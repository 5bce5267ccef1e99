r"""Run outside verifiers on instances whose answers are known: `python -m tools.verifiers KIT marabou=PYTHON ...`.

KIT is a folder that `linfdist benchmark` wrote; PYTHON the interpreter of an environment that has the verifier, and
that no part of linfdist shares:

    python -m venv E && E/bin/pip install maraboupy==2.0.0 onnx onnxruntime                              (marabou)
    python -m venv E && E/bin/pip install -c constraints.txt torch onnx onnxruntime                    (neuralsat)
    E/bin/pip install --no-deps neuralsat==0.2.17 beartype coloredlogs humanfriendly gurobipy onnxsim psutil \
        sortedcontainers tqdm termcolor joblib scipy requests urllib3 idna certifi charset-normalizer
    touch E/lib/python3*/site-packages/torchvision.py   # only its non-maximum suppression imports it

Each instance runs in a process of its own, which is stopped at the limit. Rows go to results/verifiers.jsonl, where
what has a row is not run again, and the table into docs/benchmark.md. A point that a verifier names is judged in
rational arithmetic.
"""

import argparse
import csv
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from datetime import date
from fractions import Fraction
from pathlib import Path
from typing import Any

from linfdist import exact
from linfdist.data import read_image
from linfdist.experiments.kit.check import in_parts, logits_at
from linfdist.experiments.kit.truth import UNIT, ball
from linfdist.files import append
from linfdist.ops.machine import in_words

from .markdown import fill, markdown

ROOT = Path(__file__).parents[1]
ROWS, PAGE = ROOT / "results" / "verifiers.jsonl", ROOT / "docs" / "benchmark.md"
START = 30  # seconds beyond the limit, in which a verifier is imported and reads its files
MARABOU = """
import sys
from maraboupy import Marabou
onnx, vnnlib, limit, out = sys.argv[1:]
network = Marabou.read_onnx(onnx)
options = Marabou.createOptions(timeoutInSeconds=int(limit), verbosity=0, numWorkers=1)
answer, values, _ = network.solve(propertyFilename=vnnlib, options=options, verbose=False)
with open(out, "w") as file:
    print(answer, file=file)
    for i, variable in enumerate(network.inputVars[0].flatten() if values else ()):
        print(f"(X_{i} {values[variable]!r})", file=file)
"""
NEURALSAT = """
import os, runpy, sys
import src
onnx, vnnlib, limit, out = sys.argv[1:]
sys.path.insert(0, os.path.dirname(src.__file__))
sys.argv = ["main.py", "--net", onnx, "--spec", vnnlib, "--timeout", limit, "--device", "cpu", "--verbosity", "0",
            "--result_file", out, "--export_cex"]
runpy.run_path(os.path.join(os.path.dirname(src.__file__), "main.py"), run_name="__main__")
"""
VERIFIERS = {"marabou": ("maraboupy", MARABOU), "neuralsat": ("neuralsat", NEURALSAT)}


def run(name: str, python: str, kit: Path, row: Mapping[str, str], limit: int) -> dict[str, Any]:
    """Ask a verifier about an instance; return its row: the answer, and what its point is worth if it names one."""
    with tempfile.TemporaryDirectory() as work:
        out, start = Path(work) / "answer", time.monotonic()
        files = [str((kit / row[key]).resolve()) for key in ("onnx", "vnnlib")]
        command = [python, "-W", "ignore", "-c", VERIFIERS[name][1], *files, str(limit), str(out)]
        error = ""
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=limit + START, cwd=work,
                check=False,
            )  # fmt: skip
            error = (done.stderr.strip().splitlines() or [""])[-1][:200]
            text = out.read_text(encoding="utf-8") if out.exists() else "error"
        except subprocess.TimeoutExpired:
            text = "timeout"
        seconds = round(time.monotonic() - start, 1)
    first = text.split()[0].lower() if text.split() else "error"
    answer = first if first in ("sat", "unsat", "error") else "timeout" if "timeout" in first else "unknown"
    found = {"answer": answer, "seconds": seconds, "limit": limit}
    if answer == "error":
        found["error"] = error
    elif answer == "sat":
        found["point"] = judged(kit, row, [Fraction(value) for value in re.findall(r"X_\d+\s+([-+.\de]+)", text)])
    return found


def judged(kit: Path, row: Mapping[str, str], point: Sequence[Fraction]) -> str:
    """Say in rational arithmetic whether a point, scaled as the files, is in the ball and has another class."""
    network, label = exact.load(kit / row["network"]), int(row["label"])
    pixels = read_image(kit / row["image"], network.shape[0]).numpy()
    low, high = (ends.ravel() for ends in ball(pixels, in_parts(row["epsilon"])))
    if len(point) != len(low):
        return f"{len(point)} of {len(low)} pixels"
    ends = [(Fraction(a, UNIT), Fraction(b, UNIT)) for a, b in zip(low.tolist(), high.tolist(), strict=True)]
    inside = [min(max(x, a), b) for x, (a, b) in zip(point, ends, strict=True)]
    logits, moved = logits_at(network, inside), max(abs(x - y) for x, y in zip(point, inside, strict=True))
    lead = logits[label] - max(each for j, each in enumerate(logits) if j != label)
    said = f"the label leads by {float(lead):.1e}" if lead > 0 else "counterexample"
    return f"{said}, after it was moved into the ball by {float(moved):.1e}" if moved else said


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Count by verifier, form and size what was solved, what was not, and what contradicts the truth."""
    lines, groups = [], dict[tuple[Any, ...], list[Mapping[str, Any]]]()
    for row in sorted(rows, key=lambda row: str(row["verifier"])):
        groups.setdefault((row["verifier"], row["version"], form(row), size(row), row["limit"]), []).append(row)
    for key, own in groups.items():
        solved = [row for row in own if row["answer"] == row["truth"]]
        wrong = [row for row in own if {row["answer"], row["truth"]} == {"sat", "unsat"}]
        points = [row for row in solved if row["truth"] == "sat" and row["point"].startswith("counterexample")]
        counts = [sum(row["truth"] == truth for row in solved) for truth in ("unsat", "sat")]
        totals = [sum(row["truth"] == truth for row in own) for truth in ("unsat", "sat")]
        others = [sum(row["answer"] == what for row in own) for what in ("timeout", "unknown", "error")]
        lines.append([
            f"{key[0]} {key[1]}", key[2], key[3], *(f"{a} of {b}" for a, b in zip(counts, totals, strict=True)),
            f"{len(points)} of {counts[1]}", *map(str, others), str(len(wrong)),
            f"{max((row['seconds'] for row in solved), default=0):.0f}" if solved else "",
        ])  # fmt: skip
    headings = ["verifier", "form", "size", "unsat", "sat", "points that are counterexamples", "timeouts", "unknown",
                "errors", "contradictions", "longest, s"]  # fmt: skip
    return markdown(headings, lines, 3)


def form(row: Mapping[str, Any]) -> str:
    return str(row["onnx"]).removesuffix(".onnx").rpartition("-")[2]


def size(row: Mapping[str, Any]) -> str:
    return Path(row["onnx"]).name.partition("-")[0]


def write_page() -> None:
    """Fill in the table of the page."""
    rows = [json.loads(line) for line in ROWS.read_text(encoding="utf-8").splitlines()]
    origin = "; ".join(
        f"{day}, {machine}, a limit of {limit} s for each instance, and {START} s more for its start"
        for day, machine, limit in dict.fromkeys((row["date"], row["machine"], row["limit"]) for row in rows)
    )
    text = f"{table(rows)}\n\nMeasured by `python -m tools.verifiers` on {origin}."
    PAGE.write_text(fill(PAGE.read_text(encoding="utf-8"), {"verifiers": text}, "docs/benchmark.md"), encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("kit", type=Path, nargs="?", help="folder of `linfdist benchmark`; without it: only the page")
    parser.add_argument("verifiers", nargs="*", metavar="NAME=PYTHON", help=f"of {', '.join(VERIFIERS)}")
    parser.add_argument("--limit", type=int, default=30, help="seconds for an instance")
    parser.add_argument("--form", choices=("relu", "dist"), default="relu")
    options = parser.parse_args(arguments)
    old = ROWS.read_text(encoding="utf-8").splitlines() if ROWS.exists() else []
    done = {tuple(json.loads(line)[key] for key in ("verifier", "onnx", "vnnlib")) for line in old}
    for each in options.verifiers:
        name, _, python = each.partition("=")
        code = "import sys, importlib.metadata as m; print(m.version(sys.argv[1]))"
        version = subprocess.run([python, "-c", code, VERIFIERS[name][0]], capture_output=True, text=True, check=True)
        with (options.kit / "truth.csv").open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                if form(row) != options.form or (name, row["onnx"], row["vnnlib"]) in done:
                    continue
                found = {
                    "verifier": name, "version": version.stdout.strip(), "onnx": row["onnx"], "vnnlib": row["vnnlib"],
                    "truth": row["answer"], **run(name, python, options.kit, row, options.limit),
                    "date": date.today().isoformat(), "machine": in_words(),
                }  # fmt: skip
                append(ROWS, json.dumps(found) + "\n")
                print(found, flush=True)
    write_page()
    return 0


if __name__ == "__main__":
    sys.exit(main())
