"""What certificates and attacks cost: `python -m benchmarks.certify`."""

import math
import time
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from rich.console import Console, Group, RenderableType
from rich.table import Table
from torch import Tensor

from linfdist import data, recipes
from linfdist.attacks import attack
from linfdist.certificates import Certifier, certify
from linfdist.certificates.proofs import rows_at_once
from linfdist.eps import parse_eps
from linfdist.experiments.bench.races import undisturbed
from linfdist.models import DistNet, PixelNet
from linfdist.training import Trainer

from . import Ratio, cost, parse, parser, seconds_by_turn

RECIPE, SETTINGS = "mnist", ("width=1024", "batch_size=512")
FORWARD, STEP = "a forward pass", "a training step, p = ∞"
FORWARD_ONE = "a forward pass of one image"
WARM_UP = 2
WIDTH, DEPTH = 5120, 5  # of the large network
LARGE_IMAGES = 10_000
LARGE_MEMORY = 1000  # megabytes, at most


@dataclass(frozen=True)
class Large:
    """Certifying many images on a large network. Memory is what the process grew by at its peak, None if unknown."""

    images: int
    seconds: float
    megabytes: float | None


def measure(turns: int = 7, images: int | None = None) -> list[Ratio]:
    """Time certificates and attacks on the paper's MNIST network at width 1024, on this machine's threads.

    images: how many test images; all by default. The network has been trained for a few steps at p = inf.
    """
    recipe = recipes.override(recipes.load(RECIPE), SETTINGS)
    trainer = Trainer(recipe, data.load(recipe.data), data.info(recipe.data))
    network, state = trainer.network, replace(trainer.state, p=math.inf)
    x, y = trainer.batches.at(0)

    def step() -> None:
        trainer.differentiate(x, y, state)
        trainer.update(state)
        network.eval()

    for _ in range(WARM_UP):
        step()
    labels = network(x).argmax(1)  # so that every image is attacked
    many = data.load(recipe.data, split="test").images[:images].float() / 255
    pgd, eps = attack("pgd"), recipe.eps
    with undisturbed():
        passes = seconds_by_turn(
            {
                FORWARD: lambda: _forward(network, many),
                "margin": lambda: certify(network, many, eps, method="margin"),
                "box, one radius": lambda: certify(network, many, eps, radii=False),
                "box, largest radius": lambda: certify(network, many, eps),
            },
            turns,
        )
        one, by_margin, by_box = many[:1], Certifier(network, "margin"), Certifier(network)
        alone = seconds_by_turn(
            {
                FORWARD_ONE: lambda: _forward(network, one),
                "one image, margin": lambda: certify(network, one, eps, method="margin"),
                "one image, box, one radius": lambda: certify(network, one, eps, radii=False),
                "one image, certifier, margin": lambda: by_margin(one, eps),
                "one image, certifier, box, one radius": lambda: by_box(one, eps, radii=False),
                "one image, certifier, box, largest radius": lambda: by_box(one, eps),
            },
            3 * turns,
        )
        steps = seconds_by_turn({STEP: step, "PGD, 20 steps": lambda: pgd(network, x, labels, parse_eps(eps))}, turns)
    return [
        cost(passes, "margin", FORWARD, 1.1),
        cost(passes, "box, one radius", FORWARD, 4.0),
        cost(passes, "box, largest radius", FORWARD, None),
        cost(alone, "one image, margin", FORWARD_ONE, None),
        cost(alone, "one image, box, one radius", FORWARD_ONE, None),
        cost(alone, "one image, certifier, margin", FORWARD_ONE, None),
        cost(alone, "one image, certifier, box, one radius", FORWARD_ONE, None),
        cost(alone, "one image, certifier, box, largest radius", FORWARD_ONE, None),
        cost(steps, "PGD, 20 steps", STEP, 25.0),
    ]


def measure_large(images: int = LARGE_IMAGES) -> Large:
    """`margin` of MNIST-size images on the paper's MNIST network."""
    torch.manual_seed(0)
    network = DistNet((1, 28, 28), 10, WIDTH, DEPTH, mean=[0.1307], std=0.3081).eval()
    x = torch.randint(256, (images, 1, 28, 28)).float().div_(255)
    before = _restart_peak()
    start = time.perf_counter()
    certify(network, x, "0.3", method="margin")
    seconds = time.perf_counter() - start
    return Large(images, seconds, None if before is None else _memory("VmHWM") - before)


@torch.no_grad()
def _forward(network: PixelNet, x: Tensor) -> None:
    """Run the network in the chunks of certificates: the kernels skip more weights in a chunk than in the whole."""
    for chunk in x.split(rows_at_once(network)):
        network(chunk)


def _restart_peak() -> float | None:
    """Forget the process's peak of memory; its present size in megabytes. None where the system cannot (not Linux)."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
        return _memory("VmRSS")
    except OSError:
        return None


def _memory(field: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1]) / 1024


def terminal(costs: list[Ratio], large: Large | None) -> RenderableType:
    """Lay out the costs as a table, with a line about the large network."""
    table = Table(title=f"certificates: {RECIPE}, {', '.join(SETTINGS)}, {torch.get_num_threads()} threads")
    table.add_column("what")
    table.add_column("time", justify="right")
    table.add_column("ratio", justify="right")
    table.add_column("to")
    table.add_column("at most", justify="right")
    for each in costs:
        target = "" if each.target is None else f"{each.target:g}"
        table.add_row(each.what, f"{each.milliseconds:.1f} ms", f"{each.ratio:.2f}", each.over, target)
    if large is None:
        return table
    memory = "memory unknown here" if large.megabytes is None else f"{large.megabytes:.0f} MB more memory"
    return Group(
        table,
        f"margin of {large.images} images, width {WIDTH}, depth {DEPTH}: {large.seconds:.1f} s, "
        f"{memory} (at most {LARGE_MEMORY} MB)",
    )


if __name__ == "__main__":
    given = parse(parser(__doc__))
    Console().print(terminal(measure(3, 1000) if given.quick else measure(), None if given.quick else measure_large()))
