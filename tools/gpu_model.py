"""What the compiled kernels could do at best on three GPUs: a model, not a measurement.

    python -m tools.gpu_model                 # results/gpu-code.json -> docs/gpu-model.md

The inner loops of `tools.gpu_table` say how many instructions of which class an element |x - w| costs. A processor
issues so many of them a clock, and each of its units executes so many: the slowest of these is the bound.
"""

import json
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from .gpu_table import TABLE

PAGE = Path(__file__).parent.parent / "docs" / "gpu-model.md"


@dataclass(frozen=True)
class Gpu:
    """Published figures; rates are lanes a clock and multiprocessor."""

    name: str
    target: str
    processors: int
    clock: float  # boost, GHz
    bandwidth: float  # of the memory, GB/s
    floats: int  # float32 sums and products
    loads: int  # load/store units

    issue: int = 128  # four schedulers, one instruction of 32 lanes each
    maxima: int = 64  # comparisons, minima, maxima
    specials: int = 16  # exp2, log2, reciprocals


GPUS = (
    Gpu("RTX 3090", "sm_86", 82, 1.695, 936, 128, 16),
    Gpu("A100 80 GB", "sm_80", 108, 1.41, 2039, 64, 32),
    Gpu("H100 SXM", "sm_90", 132, 1.98, 3350, 128, 32),
)
UNITS = {
    "issue": ("issue", ("add", "mul", "fma", "max", "special", "memory", "fp64", "other")),
    "floats": ("floats", ("add", "mul", "fma")),
    "maxima": ("maxima", ("max",)),
    "specials": ("specials", ("special",)),
    "loads": ("loads", ("memory",)),
}

# The CIFAR-10 network of Table 5 of the paper: six layers, 5120 wide, batches of 512.
LAYERS, BATCH, STEPS = [3072, *[5120] * 5, 10], 512, 50_000 // 512
PAPER_EPOCH = 19.7  # seconds on an RTX 3090, by the paper's table of training times
ADAM_PASSES = 7  # w, its gradient and two moments are read, all but the gradient are written

# One line: its name, its kernels (forward, dx, dw), and the authors' second implementation, seconds on an RTX 3090.
CASES = (
    ("p = 8", ("finite linear fp32 p=8", "finite_dx linear fp32 p=8", "finite_dw linear fp32 p=8"), 0.113),
    ("general p", ("finite linear fp32 p=30.5", "finite_dx linear fp32 p=30.5", "finite_dw linear fp32 p=30.5"), 0.187),
    ("p = ∞", ("inf_argmax linear fp32", "inf_dx linear fp32", "inf_dw fp32"), 0.080),
)
# Additions that an element costs in each kernel: they tell how many elements one turn of a compiled loop has.
ADDITIONS = {
    "box linear fp32": 2,
    "box_argmax linear fp32": 2,
    "finite linear fp32 p=30.5": 3,
    "finite_dx linear fp32 p=30.5": 3,
    "finite_dw linear fp32 p=30.5": 3,
}


def elements_of(kernel: str, row: dict[str, Any]) -> int:
    """How many elements one turn of the inner loop has, for each thread; a few more additions may be in addresses."""
    additions = row["classes"]["add"]
    each = ADDITIONS.get(kernel, 1) * row["outputs"]
    steps = additions // each
    if not steps or additions - steps * each > 0.05 * additions:
        raise ValueError(f"{kernel}: {additions} additions are no whole number of steps of {each}")
    return int(steps * row["outputs"])


def costs(kernel: str, row: dict[str, Any], gpu: Gpu) -> dict[str, float]:
    """Clocks a multiprocessor needs for one element, by the unit that executes them."""
    elements = elements_of(kernel, row)
    return {
        unit: sum(row["classes"].get(name, 0) for name in classes) / elements / getattr(gpu, rate)
        for unit, (rate, classes) in UNITS.items()
    }


def seconds(kernel: str, row: dict[str, Any], gpu: Gpu, weights: int) -> float:
    """The bound for all weights and a batch."""
    return weights * BATCH * max(costs(kernel, row, gpu).values()) / (gpu.processors * gpu.clock * 1e9)


def step_seconds(kernels: dict[str, Any], forward: str, dx: str, dw: str, gpu: Gpu) -> dict[str, float]:
    """The parts of a training step; the first layer needs no gradient of its input."""
    weights = sum(a * b for a, b in pairwise(LAYERS))
    first = LAYERS[0] * LAYERS[1]
    sizes = {forward: weights, dx: weights - first, dw: weights}
    parts = {name: seconds(name, kernels[name][gpu.target], gpu, size) for name, size in sizes.items()}
    parts["adam"] = ADAM_PASSES * 4 * weights / (gpu.bandwidth * 1e9)
    return parts


def elements_table(kernels: dict[str, Any]) -> list[str]:
    lines = ["| kernel | GPU | instructions an element | bound by | elements a nanosecond |", "|---|---|---|---|---|"]
    names = [name for _, three, _ in CASES for name in three]
    for name in [*names, "inf linear fp32", "box linear fp32", "box_argmax linear fp32"]:
        for gpu in GPUS:
            row = kernels[name][gpu.target]
            cost = costs(name, row, gpu)
            unit = max(cost, key=lambda each: cost[each])
            rate = gpu.processors * gpu.clock / cost[unit]
            lines.append(f"| {name} | {gpu.name} | {row['loop'] / elements_of(name, row):.2f} | {unit} | {rate:,.0f} |")
    return lines


def steps_table(kernels: dict[str, Any]) -> list[str]:
    lines = [
        "| p | GPU | forward | dx | dw | Adam | a step | an epoch | authors' step |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for case, three, authors in CASES:
        for gpu in GPUS:
            parts = step_seconds(kernels, *three, gpu)
            total = sum(parts.values())
            columns = " | ".join(f"{1e3 * part:.1f} ms" for part in parts.values())
            theirs = f"{1e3 * authors:.0f} ms" if gpu.target == "sm_86" else ""
            lines.append(
                f"| {case} | {gpu.name} | {columns} | {1e3 * total:.1f} ms | {STEPS * total:.1f} s | {theirs} |"
            )
    return lines


def code_table(kernels: dict[str, Any]) -> list[str]:
    lines = [
        "| kernel | target | registers | spilled | shared memory | instructions | inner loop, by class |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, targets in kernels.items():
        for target, row in targets.items():
            classes = ", ".join(f"{number} {each}" for each, number in row["classes"].items())
            loop = f"{row['loop']}: {classes}" if row["loop"] else "none"
            sizes = f"{row['registers']} | {row['spills']} B | {row['shared']} B | {row['instructions']}"
            lines.append(f"| {name} | {target} | {sizes} | {loop} |")
    return lines


def page() -> str:
    table = json.loads(TABLE.read_text())
    kernels = table["kernels"]
    gpus = "\n".join(
        f"| {gpu.name} | {gpu.processors} | {gpu.clock} GHz | {gpu.bandwidth:g} GB/s | {gpu.floats} | {gpu.maxima} | "
        f"{gpu.specials} | {gpu.loads} | {gpu.issue} |"
        for gpu in GPUS
    )
    parts = [
        "# What the kernels could do on a GPU",
        "<!-- Written by python -m tools.gpu_model; change that instead. -->",
        "**This is a model, not a measurement.** No GPU was at hand. The kernels were compiled for each of them, "
        f"without a device, by Triton {table['triton']}, and the instructions of their inner loops were counted. A "
        "bound says how long these instructions take if nothing ever waits: not for memory, not for another "
        "instruction, not for the last programs of a launch to finish. A real run takes longer. [The compiled "
        "code](gpu-code.md) says how it was read, and what was checked.",
        "## A training step",
        f"The CIFAR-10 network of the paper (six layers, 5120 neurons wide), batches of {BATCH}, {STEPS} steps an "
        f"epoch. The paper states {PAPER_EPOCH} s an epoch on an RTX 3090. The last column is what the authors' second "
        "implementation takes a step on an RTX 3090: 187 ms at general p, 113 ms at small whole p, 80 ms at p = ∞. Not "
        "counted are the loss, mean shift, the layouts that inputs and weights are copied into, and "
        "the launches. Adam is bound by memory: seven passes over the weights.",
        "\n".join(steps_table(kernels)),
        "## An element",
        "One element is one |x − w|, in the gradients one term of a sum. Which unit is the bound: `issue` (each "
        "instruction needs a place, whatever it is), `floats` (sums and products), `maxima` (comparisons too), "
        "`specials` (exp2, log2), `loads`.",
        "\n".join(elements_table(kernels)),
        "## The figures that were assumed",
        "Lanes a clock and multiprocessor, from NVIDIA's white papers of GA102, A100 and H100 and the table of "
        "arithmetic throughput in the CUDA C++ Programming Guide; clocks are the boost clocks of the data sheets.",
        "| GPU | multiprocessors | clock | memory | float32 | maxima | special | loads | issue |\n"
        "|---|---|---|---|---|---|---|---|---|\n" + gpus,
        "## Every kernel",
        "`make test-all` compiles all of them again and fails if one spills more registers, or needs over a tenth more "
        "than this table says (`python -m tools.gpu_table --check`).",
        "\n".join(code_table(kernels)),
    ]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
