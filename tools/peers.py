"""Train and certify networks with CTRAIN's own code, and certify the same networks with ours.

python -m tools.peers fashion --methods ibp sabr mtl-ibp --minutes 1.25

The first run makes CTRAIN's environment (--env). Rows go to results/peers.jsonl; the table beside `linfdist compare` is
in docs/compare.md (`make pages`). What is finished is not done again. Minutes are processor time of one core.
"""

import argparse
import json
import subprocess
import venv
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

import linfdist as ld
from linfdist.baselines import ReLUNet
from linfdist.eps import down, nearest, up, written
from linfdist.evaluation import evaluate
from linfdist.experiments.tables.layout import NONE
from linfdist.experiments.tables.rows import CompareRow
from linfdist.experiments.tables.rules import time_text
from linfdist.ops.machine import in_words
from linfdist.runs.records import Percent, Record, append_records, read_records
from linfdist.runs.rows import Row

from . import ROOT, attempt
from .markdown import markdown

FILE = Path("results") / "peers.jsonl"
FOLDER = ROOT / "build" / "peers"
RELEASE = "CTRAIN==0.6.1"
TITLES = {"ibp": "IBP", "sabr": "SABR", "mtl-ibp": "MTL-IBP"}
NETWORKS = ("small", "medium", "cnn7")
# What CTRAIN's loaders normalise with, and how many pixels they shift crops by; they have none for Fashion-MNIST.
IMAGES: dict[str, dict[str, Any]] = {
    "mnist": {"mean": [0.1307], "std": [0.3081], "pad": 0},
    "fashion": {"mean": [0.286], "std": [0.353], "pad": 0},
    "cifar10": {"mean": [0.4914, 0.4822, 0.4465], "std": [0.2023, 0.1994, 0.2010], "pad": 2},
}
_HEADINGS = (
    "method", "certified by CTRAIN", "certified by ours", "clean", "strongest, attack", "epochs", "parameters"
)  # fmt: skip
SAME = 1e-3  # by how much logits may differ between CTRAIN's network and ours, which has its batch norms folded in


class PeerRow(Record):
    """A network that CTRAIN has trained, and how many of the first n test images are certified.

    settings: what was changed of CTRAIN's defaults; budget: seconds of processor time for the training, which took
    `cpu_seconds`, and `seconds` by the clock. certified: by CTRAIN's bounds; certified_here: by ours, of the network as
    executed; strongest: correct, and broken by no attack of ours. only_there, only_here: images that one side alone
    certifies. broken: images that CTRAIN certifies and an attack of ours breaks. logits_differ: the largest difference
    between the logits of the two forms of the network.
    """

    data: str
    eps: str
    method: str
    network: str
    settings: dict[str, float]
    budget: float = Field(gt=0)
    seed: int
    epochs: float
    seconds: float
    cpu_seconds: float
    parameters: int
    n: int = Field(ge=1)
    clean: Percent
    certified: Percent
    certified_here: Percent
    pgd20: Percent
    strongest: Percent
    only_there: int
    only_here: int
    broken: int
    logits_differ: float
    certify_ms: float
    certify_ms_here: float
    versions: dict[str, str]
    command: str
    machine: str
    date: str


def environment(folder: Path) -> Path:
    """Return the Python of an environment that has CTRAIN; make it if there is none.

    torch is of constraints.txt, so that no build for GPUs is pulled; its other versions are those that CTRAIN asks for.
    """
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
        pinned = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
        constraints = folder / "constraints.txt"
        constraints.write_text("\n".join(line for line in pinned if line.startswith("torch==")) + "\n")
        for wanted in (["torch"], [RELEASE], ["--no-deps", "onnx2pytorch"]):
            subprocess.run([python, "-m", "pip", "install", "-q", "-c", constraints, *wanted], check=True)
    usable = "import sys; sys.path.insert(0, 'tools'); import peers_ctrain; peers_ctrain.imported()"
    found = subprocess.run([python, "-c", usable], cwd=ROOT, capture_output=True, text=True, check=False)
    if found.returncode:
        raise ImportError(
            f"{python} cannot import CTRAIN ({found.stderr.strip().splitlines()[-1]}): {RELEASE} needs auto_LiRPA 0.7, "
            "which no package index has; add it to this environment as its authors' README says, and try again"
        )
    return python


def run(python: Path, task: dict[str, Any], count: int, folder: Path) -> dict[str, Any]:
    """Let CTRAIN train and certify in `folder`, if that is not done, and return its answer."""
    answer = folder / "answer.json"
    if not answer.exists():
        folder.mkdir(parents=True, exist_ok=True)
        train, test = ld.data.load(task["data"]), ld.data.load(task["data"], split="test")
        np.savez(
            folder / "images.npz", x=train.images.numpy(), y=train.labels.numpy(),
            test_x=test.images[:count].numpy(), test_y=test.labels[:count].numpy(),
        )  # fmt: skip
        (folder / "task.json").write_text(json.dumps(task) + "\n", encoding="utf-8")
        with open(folder / "log", "w", encoding="utf-8") as log:
            command = [python, ROOT / "tools" / "peers_ctrain.py", folder / "task.json"]
            if subprocess.run(command, stdout=log, stderr=log, check=False).returncode:
                raise ValueError(f"CTRAIN has failed: see the end of {folder / 'log'}")
        (folder / "images.npz").unlink()
    found: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
    return found


def folded(path: Path, shape: Sequence[int], mean: Sequence[float], std: Sequence[float]) -> tuple[ReLUNet, Tensor]:
    """Read a network of CTRAIN as one of ours, and its logits of the test images.

    Batch norms and the division by `std` become part of the weights, in float64.
    """
    with np.load(path, allow_pickle=False) as file:
        arrays = {name: torch.from_numpy(file[name]) for name in file.files if name != "layers"}
        layers = json.loads(str(file["layers"]))
    logits = arrays.pop("logits")
    weights: list[tuple[Tensor, Tensor]] = []
    convolutions: list[list[int]] = []
    hidden: list[int] = []
    for number, layer in enumerate(layers):
        kind, own = layer["kind"], f"{number}."
        of = {name.removeprefix(own): value.double() for name, value in arrays.items() if name.startswith(own)}
        if kind in ("Conv2d", "Linear"):
            weights.append((of["weight"], of["bias"]))
            outputs = len(of["weight"])
            if kind == "Conv2d":
                convolutions.append([outputs, layer["kernel_size"][0], layer["stride"][0], layer["padding"][0]])
            else:
                hidden.append(outputs)
        elif kind.startswith("BatchNorm"):
            weight, bias = weights[-1]
            scale = of["weight"] / (of["running_var"] + layer["eps"]).sqrt()
            wide = scale.reshape(-1, *[1] * (weight.ndim - 1))
            weights[-1] = (weight * wide, (bias - of["running_mean"]) * scale + of["bias"])
        elif kind not in ("ReLU", "Flatten"):
            raise ValueError(f"{path}: there is a layer {kind}, expected convolutions, linear layers and ReLUs")
    weights[0] = (weights[0][0] / torch.tensor(std, dtype=torch.float64)[:, None, None], weights[0][1])
    network = ReLUNet(shape, hidden.pop(), mean, 1.0, convolutions, hidden)
    with torch.no_grad():
        for own_value, value in zip(network.parameters(), (each for pair in weights for each in pair), strict=True):
            own_value.copy_(value)
    return network.eval(), logits


def measure(task: dict[str, Any], answer: dict[str, Any], folder: Path, count: int, command: str) -> PeerRow:
    """Certify and attack the network with ours, and make the row."""
    info, test = ld.data.info(task["data"]), ld.data.load(task["data"], split="test")
    images, labels = test.images[:count], test.labels[:count]
    network, logits = folded(folder / "network.npz", info.shape, task["mean"], task["std"])
    with torch.no_grad():
        differ = float((torch.cat([network(few / 255) for few in images.split(100)]) - logits).abs().max())
    if differ > SAME:
        raise ValueError(f"{folder}: logits differ by {differ:.2g} between CTRAIN's network and its copy")
    eps = ld.recipes.load(f"{task['data']}-quick").eps
    found = evaluate(network, (images, labels), eps, method="crown", radii=False, attacks=("pgd", "strong"))
    there, here = set(answer["certified"]), {row.index for row in found.rows if row.certified}
    seconds = found.summary["seconds"]["certify"]
    return PeerRow(
        data=task["data"], eps=eps, method=task["method"], network=task["network"], settings=task["settings"],
        budget=task["seconds"], seed=task["seed"], epochs=round(answer["epochs"], 3),
        seconds=round(answer["seconds"], 3), cpu_seconds=round(answer["cpu_seconds"], 3),
        parameters=answer["parameters"], n=count, clean=percent(answer["correct"], count),
        certified=percent(answer["certified"], count), certified_here=percent(here, count),
        pgd20=found.summary["attacks"]["pgd"], strongest=found.summary["robust"],
        only_there=len(there - here), only_here=len(here - there),
        broken=sum(row.index in there and _is_broken(row) for row in found.rows), logits_differ=differ,
        certify_ms=round(1000 * answer["certify_seconds"] / count, 3),
        certify_ms_here=round(1000 * seconds / count, 3),
        versions=answer["versions"], command=command, machine=in_words(), date=date.today().isoformat(),
    )  # fmt: skip


def percent(images: Sequence[int] | set[int], count: int) -> float:
    """Return how many percent of `count` images these are."""
    return round(100 * len(images) / count, 6)


def _is_broken(row: Row) -> bool:
    return any(each.broken for each in row.attacks.values())


def read(path: Path) -> list[PeerRow]:
    """Read all rows; none if there is no such file. ValueError names a line that is no row."""
    return read_records(path, PeerRow)


def tables(rows: Sequence[PeerRow], compared: Sequence[CompareRow]) -> str:
    """Write a table for each data set and time, beside the rows of `linfdist compare` with the same time."""
    parts, keys = [], list(dict.fromkeys((row.data, row.budget, row.n) for row in rows))
    for data, budget, n in keys:
        mine = [row for row in rows if (row.data, row.budget, row.n) == (data, budget, n)]
        beside = [
            row for row in compared
            if (row.data, row.budget, row.n) == (data, budget, n) and row.method in ("dist", *TITLES)
        ]  # fmt: skip
        lines = [
            [f"CTRAIN: {_named(row)}", down(written(row.certified), 2), down(written(row.certified_here), 2),
             nearest(row.clean, 2), up(written(row.strongest), 2), nearest(row.epochs, 1), f"{row.parameters:,}"]
            for row in mine
        ] + [
            [f"here: {row.title}", NONE, down(written(row.certified), 2), nearest(row.clean, 2),
             up(written(row.strongest), 2), nearest(row.epochs, 1), f"{row.parameters:,}"]
            for row in beside
        ]  # fmt: skip
        lines.sort(key=lambda line: -float(line[2]))
        first, days = mine[0], sorted({row.date for row in mine})
        versions = ", ".join(f"{name} {number}" for name, number in first.versions.items())
        when = " to ".join(dict.fromkeys((days[0], days[-1])))
        parts += [
            f"**{data}, ε = {first.eps}, {time_text(budget)} of training**, {n:,} test images; seed {first.seed}; "
            f"{versions}; {first.machine}; {when}."
        ]
        parts += [markdown(_HEADINGS, lines, 1)]
    return "\n\n".join(parts)


def _named(row: PeerRow) -> str:
    network = "" if row.network == NETWORKS[0] else f", {row.network}"
    changed = "".join(f", {key} = {value:g}" for key, value in row.settings.items())
    return f"{TITLES[row.method]}{network}{changed}"


def work(given: argparse.Namespace) -> None:
    """Run whatever has no row yet."""
    python, done = environment(given.env), read(ROOT / FILE)
    settings = dict(given.set)
    for data in given.data:
        for method in given.methods:
            eps = ld.recipes.load(f"{data}-quick").fraction("eps")
            task = {
                "data": data, "method": method, "network": given.network, "eps": float(eps), "seed": given.seed,
                "seconds": 60 * given.minutes, "settings": settings, **IMAGES[data],
            }  # fmt: skip
            keys = ("data", "method", "network", "seed", "settings")
            wanted = [*(task[key] for key in keys), task["seconds"], given.images]
            if any([*(getattr(row, key) for key in keys), row.budget, row.n] == wanted for row in done):
                continue
            changed = "".join(f"-{key}={value:g}" for key, value in settings.items())
            name = f"{data}-{method}-{given.network}-{given.minutes:g}m-{given.seed}-{given.images}{changed}"
            command = (
                f"python -m tools.peers {data} --methods {method} --network {given.network} "
                f"--minutes {given.minutes:g} --images {given.images} --seed {given.seed}"
            ) + "".join(f" --set {key}={value:g}" for key, value in settings.items())
            answer = run(python, task, given.images, FOLDER / name)
            row = measure(task, answer, FOLDER / name, given.images, command)
            append_records(ROOT / FILE, [row.model_dump()])
            print(f"{name}: certified {row.certified:.2f} % by CTRAIN, {row.certified_here:.2f} % here", flush=True)


def _setting(text: str) -> tuple[str, float]:
    """Read a change such as lr=0.001; argparse names the text of a ValueError."""
    key, _, value = text.partition("=")
    return key, float(value)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.peers", description=__doc__)
    parser.add_argument("data", nargs="+", choices=IMAGES)
    parser.add_argument("--methods", nargs="+", choices=TITLES, default=list(TITLES))
    parser.add_argument("--network", choices=NETWORKS, default=NETWORKS[0], help="which of CTRAIN's networks")
    parser.add_argument("--minutes", type=float, default=5, help="of processor time, for one training")
    parser.add_argument("--images", type=int, default=2000, help="the first test images")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--set", nargs="*", type=_setting, default=[], help="changes of CTRAIN's defaults: lr=0.001")
    parser.add_argument("--env", type=Path, default=FOLDER / "env", help="CTRAIN's environment, made if it is missing")
    given = parser.parse_args(arguments)
    return attempt(lambda: work(given))


if __name__ == "__main__":
    raise SystemExit(main())
