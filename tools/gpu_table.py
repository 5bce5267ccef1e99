"""Compile every Triton kernel for every target, without a device, and write or check the committed table.

    python -m tools.gpu_table                 # writes results/gpu-code.json: 15 minutes of one core
    python -m tools.gpu_table --check         # compiles again and compares; exit code 1 says what has changed

What fails the check: a kernel that spills more registers than the table says, one that needs over a tenth more
registers, shared memory or instructions (in all, or in its inner loop) than the table says, one that the table does not
have, and one of the kernels that certificates rely on in which a float could be rounded otherwise than the proof says
(`gpu_code.unsound`).
"""

import argparse
import json
import re
import sys
from typing import Any

from . import ROOT, gpu_code

TABLE = ROOT / "results" / "gpu-code.json"
SOUND = re.compile(r"(inf|box)(_argmax)? ")  # forward at p = inf, and boxes: certificates rely on their roundings
GROWTH, SLACK = 1.1, 8  # a few more instructions of a small kernel are no surprise

Row = dict[str, Any]


def row_of(variant: Any, code: gpu_code.Code) -> Row:
    loop = gpu_code.counts(code.inner_loop)
    return {
        "outputs": variant.constants.get("RM", 1) * variant.constants.get("RN", 1),  # that a thread computes at once
        "registers": code.registers,
        "spills": code.spills,
        "shared": code.shared,
        "instructions": len(code.instructions),
        "loop": sum(loop.values()),
        "classes": {name: number for name, number in loop.items() if number},
    }


def as_text(table: dict[str, Any]) -> str:
    """Write the table as JSON with one line per kernel and target."""
    kernels = (
        f"{json.dumps(name)}: {{\n"
        + ",\n".join(f"  {json.dumps(target)}: {json.dumps(row)}" for target, row in rows.items())
        for name, rows in table["kernels"].items()
    )
    text = "\n },\n ".join(kernels)
    return f'{{"triton": {json.dumps(table["triton"])}, "kernels": {{\n {text}\n }}\n}}}}\n'


def surprises(name: str, row: Row, expected: Row | None) -> list[str]:
    """Say in sentences what is wrong with a kernel."""
    if expected is None:
        return [f"{name} is not in the table: run python -m tools.gpu_table"]
    found = [f"{name} spills {row['spills']} bytes of registers"] if row["spills"] > expected["spills"] else []
    for key in ("registers", "shared", "instructions", "loop"):
        if row[key] > GROWTH * expected[key] + SLACK:
            found.append(f"{name}: {key} grew from {expected[key]} to {row[key]}")
    return found


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Compile every Triton kernel, and write or check the table.")
    parser.add_argument("--check", action="store_true", help="compare with the committed table instead of writing it")
    parser.add_argument("--only", default="", help="kernels whose name has this regular expression")
    parser.add_argument("--target", choices=gpu_code.TARGETS, action="append", help="only this target (repeatable)")
    chosen = parser.parse_args(arguments)
    import triton

    committed = json.loads(TABLE.read_text()) if TABLE.is_file() else {"kernels": {}}
    kernels, wrong = {}, []
    for variant in gpu_code.variants():
        if not re.search(chosen.only, variant.name):
            continue
        rows = kernels[variant.name] = dict(committed["kernels"].get(variant.name, {}))
        for target in chosen.target or gpu_code.TARGETS:
            code = gpu_code.compile_variant(variant, target)
            name, row = f"{variant.name} on {target}", row_of(variant, code)
            if SOUND.match(variant.name):
                wrong += [
                    f"{name} is not what the proof of certificates says: {what}" for what in gpu_code.unsound(code)
                ]
            wrong += surprises(name, row, rows.get(target) if chosen.check else row)
            rows[target] = row
            print(name, row, flush=True)
    if not chosen.check:
        everything = {**committed["kernels"], **kernels} if chosen.only or chosen.target else kernels
        TABLE.write_text(as_text({"triton": triton.__version__, "kernels": everything}))
    for sentence in wrong:
        print(sentence, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
