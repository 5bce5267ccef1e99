"""How fast a GPU trains the paper's network, beside published times: `linfdist bench --device cuda`."""

import dataclasses
import json
import math
import statistics
import time
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch
from rich.console import RenderableType
from rich.table import Table

from ... import data, recipes
from ...data import Dataset
from ...files import write_atomically
from ...ops.machine import backend_for, device_label, gpu_versions, synchronise
from ...recipes import Recipe
from ...training import Trainer
from ...training.distributed import Workers

RECIPE, BATCH = "cifar10", 512
SMALL, GENERAL = 8.0, 30.5
# Seconds a step of the authors' second implementation (github.com/zbh2047/L_inf-dist-net-v2) on an RTX 3090.
PUBLISHED = {SMALL: 0.113, GENERAL: 0.187, math.inf: 0.080}


@dataclass(frozen=True)
class StepTime:
    """A training step: the median of several, in seconds; `published` is that of another GPU."""

    p: float
    seconds: float
    published: float


@dataclass(frozen=True)
class DeviceReport:
    """What was measured, and on what."""

    date: str
    device: str
    backend: str
    torch: str
    versions: dict[str, str]
    recipe: str
    batch: int
    width: int
    depth: int
    steps: list[StepTime]

    def write(self, file: Path) -> None:
        """Write a readable JSON file; infinity is null there."""
        content: dict[str, Any] = dataclasses.asdict(self)
        for step in content["steps"]:
            step["p"] = None if math.isinf(step["p"]) else step["p"]
        write_atomically(file, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def measure(device: torch.device, turns: int = 20, recipe: Recipe | None = None) -> DeviceReport:
    """Time training steps of the paper's CIFAR-10 network on random images. recipe: another network."""
    recipe = recipe or recipes.override(recipes.load(RECIPE), [f"batch_size={BATCH}"])
    info = data.info(recipe.data)
    images = torch.randint(256, (2 * recipe.batch_size, *info.shape), dtype=torch.uint8)
    labels = torch.arange(len(images)) % info.num_classes
    classes = tuple(str(label) for label in range(info.num_classes))
    trainer = Trainer(recipe, Dataset(recipe.data, images, labels, classes), info, Workers(device=device))
    steps = [StepTime(p, _seconds(trainer, p, turns), published) for p, published in PUBLISHED.items()]
    return DeviceReport(
        date=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        device=device_label(device),
        backend=backend_for(device)[0] or "reference",
        torch=torch.__version__,
        versions=gpu_versions(),
        recipe=recipe.name,
        batch=recipe.batch_size,
        width=recipe.width,
        depth=recipe.depth,
        steps=steps,
    )


def _seconds(trainer: Trainer, p: float, turns: int) -> float:
    state = dataclasses.replace(trainer.state, p=p)
    times = []
    for _ in range(turns + 3):  # the first ones warm up, and may compile
        x, y = trainer.batches.at(0)
        synchronise(trainer.workers.device)
        start = time.perf_counter()
        trainer.differentiate(x, y, state)
        trainer.update(state)
        synchronise(trainer.workers.device)
        times.append(time.perf_counter() - start)
    return statistics.median(times[3:])


def terminal(report: DeviceReport) -> RenderableType:
    """Return the times as a table."""
    network = f"{report.recipe}, width {report.width}, depth {report.depth}, batch {report.batch}"
    table = Table(title=f"a training step on {report.device}, backend {report.backend}: {network}")
    for heading in ("p", "step", "images/s", "RTX 3090, authors' CUDA code"):
        table.add_column(heading, justify="right")
    for step in report.steps:
        own = f"{1e3 * step.seconds:.1f} ms", f"{report.batch / step.seconds:,.0f}"
        table.add_row("∞" if math.isinf(step.p) else f"{step.p:g}", *own, f"{1e3 * step.published:.0f} ms")
    return table
