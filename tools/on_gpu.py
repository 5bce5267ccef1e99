"""`make test-gpu`: run all tests that need a GPU, measure its speed, and write a report to send back.

The tests run in a process of their own, which notes each result at once: a GPU that brings it down is reported too.
"""

import argparse
import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from linfdist.experiments.bench import device as bench
from linfdist.files import append, write_atomically
from linfdist.ops import machine
from linfdist.ops.machine import describe_machine

NOTES = "LINFDIST_GPU_NOTES"
DRIVER = {
    "nvidia-smi": ["nvidia-smi", "--query-gpu=name,driver_version,memory.total,power.limit", "--format=csv,noheader"],
    "rocm-smi": ["rocm-smi", "--showproductname", "--showdriverversion"],
}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note the outcome of a test, as pytest's plugin in the inner process."""
    if report.when != "call" and report.outcome == "passed":
        return
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr or "")
    printed = "".join(text for name, text in report.sections if "stdout" in name)
    note = {"test": report.nodeid, "outcome": report.outcome, "seconds": round(report.duration, 3)}
    append(Path(os.environ[NOTES]), json.dumps(note | {"why": text[-4000:], "printed": printed[-2000:]}) + "\n")


def run_tests(notes: Path, chosen: list[str]) -> tuple[int, list[dict[str, Any]]]:
    """Run tests, by default all that are marked for a GPU; give pytest's exit code, and the note of each test."""
    notes.parent.mkdir(parents=True, exist_ok=True)
    notes.write_text("")
    which = chosen or ["-m", "gpu", "tests"]
    command = [sys.executable, "-m", "pytest", "-q", "-ra", "-p", "tools.on_gpu", *which]
    # The tests' own default is Triton's interpreter, which would be tried in place of the GPU.
    done = subprocess.run(command, env={**os.environ, "TRITON_INTERPRET": "0", NOTES: str(notes)})
    return done.returncode, [json.loads(line) for line in notes.read_text().splitlines()]


def facts() -> dict[str, Any]:
    """Describe the machine: what is needed to make sense of a failure elsewhere."""
    drivers = {}
    for name, command in DRIVER.items():
        try:
            drivers[name] = subprocess.run(command, capture_output=True, text=True, timeout=60).stdout.strip()
        except (OSError, subprocess.SubprocessError) as error:
            drivers[name] = f"cannot be asked: {error}"
    gpus = [dataclasses.asdict(gpu) | {"device": str(gpu.device)} for gpu in machine.gpus()]
    return {
        "machine": dataclasses.asdict(describe_machine()),
        "gpus": gpus,
        "versions": machine.gpu_versions(),
        "drivers": drivers,
        "torch": torch.__config__.show(),
    }


def speed(device: str, quick: bool) -> dict[str, Any]:
    """Measure training steps of the paper's network; or say why that failed."""
    try:
        report = bench.measure(machine.choose_device(device), turns=3 if quick else 20)
    except (RuntimeError, MemoryError) as error:  # too little memory, or a kernel that fails
        return {"failed": str(error)[-4000:]}
    return {"steps": [{"p": str(step.p), "seconds": step.seconds, "rtx3090": step.published} for step in report.steps]}


def main(arguments: list[str] | None = None) -> int:
    """Run everything; the exit code is that of the tests."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("build/gpu/report.json"))
    parser.add_argument("--device", default="cuda", help="cuda; cpu tries this program itself")
    parser.add_argument("--quick", action="store_true", help="without the speed of the large network")
    parser.add_argument("tests", nargs="*", help="only these tests, as pytest names them")
    given = parser.parse_args(arguments)
    try:
        machine.choose_device(given.device)
    except machine.DeviceError as error:
        print(f"{error}\nFor another build of torch: rm -r .venv-gpu; make test-gpu TORCH_INDEX=URL (docs/gpu.md)")
        return 2
    code, tests = run_tests(given.out.with_suffix(".jsonl"), given.tests)
    counts = {each: sum(test["outcome"] == each for test in tests) for each in ("passed", "failed", "skipped")}
    content = {**facts(), "exit_code": code, "counts": counts, "tests": tests}
    if not given.quick:
        content["speed"] = speed(given.device, quick=False)
        print(json.dumps(content["speed"], indent=2))
    write_atomically(given.out, json.dumps(content, indent=2, default=str) + "\n")
    print(f"{', '.join(f'{count} {name}' for name, count in counts.items())}; the report to send back: {given.out}")
    return code


if __name__ == "__main__":
    sys.exit(main())
