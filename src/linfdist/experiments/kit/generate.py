"""Write the benchmark's folder: train, freeze, search, prove, and keep only what is decided beyond every rounding."""

import csv
import io
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import avg_pool2d

from ... import data, exact
from ...attacks import smallest
from ...attacks.strong import STAGES, Strong
from ...exact import FrozenNet
from ...export.graph import Graph, Value
from ...files import file_sha256, write_atomically
from ...models import load
from ...theory import ReluNet, relu_to_onnx, to_relu, write_vnnlib
from ...theory.relu import Affine
from ...training.memory import train
from .check import SUMS, TRUTH, text_of
from .truth import PARTS, UNIT, Case, Whole, fooled, outputs, proved

FACTORS = tuple(Fraction(text) for text in ("0.5", "0.9", "0.99", "1.01", "1.1"))
STRETCHES = (0, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2)  # of a witness, away from the image, until floats cannot undo it
FEW = 20  # images that are searched at once
GRAPH_CHUNK = 1 << 20
LARGEST_RELU = 1 << 26  # bytes of a file; beyond it only the form with distances is written


@dataclass(frozen=True)
class Size:
    """A network: trained on the first `classes` digits, means of blocks that leave `side` pixels; or one of the zoo."""

    side: int
    classes: int
    width: int
    depth: int
    eps: str
    timeout: int  # seconds
    zoo: str | None = None


SIZES = {
    "trivial": Size(4, 2, 2, 2, "0.03", 60),
    "tiny": Size(4, 2, 4, 2, "0.03", 60),
    "small": Size(4, 10, 8, 2, "0.03", 120),
    "medium": Size(8, 10, 16, 3, "0.15", 300),
    "large": Size(8, 10, 64, 3, "0.15", 600),
    "mnist": Size(28, 10, 512, 5, "0.3", 600, zoo="mnist-0.3"),
}
DEFAULT = tuple(name for name, size in SIZES.items() if size.zoo is None)


def generate(
    folder: Path,
    sizes: Sequence[str] = DEFAULT,
    images: int = 5,
    seed: int = 0,
    data_dir: Path | None = None,
    tell: Callable[[str], object] = print,
) -> int:
    """Write the benchmark into an empty folder; return how many instances it has. The same seed gives the same bytes.

    sizes: names in `SIZES`; images: how many of each network, each with one property for each of `FACTORS`.
    """
    if unknown := [name for name in sizes if name not in SIZES]:
        raise ValueError(f"no size {unknown[0]!r}: the sizes are {', '.join(SIZES)}")
    if images < 1:
        raise ValueError(f"images = {images}: must be at least 1")
    if folder.exists() and any(folder.iterdir()):
        raise ValueError(f"{folder} is not empty: name a new folder")
    for part in ("onnx", "vnnlib", "exact", "images", "certificates", "witnesses"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    instances, truth = list[list[object]](), [list[object](TRUTH)]
    for name in sizes:
        network, x, y = _network(SIZES[name], seed, data_dir)
        forms = _write_network(folder, name, network)
        found = 0
        for case in _cases(network, x, y, seed):
            for row in _write_case(folder, name, network, case):
                truth += [[form, *row] for form in forms]
                instances += [[form, row[0], SIZES[name].timeout] for form in forms]
            found += 1
            if found == images:
                break
        tell(f"{name}: {found} image{'s' * (found != 1)}, {', '.join(forms)}")
    write_atomically(folder / "instances.csv", _csv(instances))
    write_atomically(folder / "truth.csv", _csv(truth))
    readme = (Path(__file__).parent / "readme.md").read_text(encoding="utf-8")
    write_atomically(folder / "README.md", readme)
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    sums = "".join(f"{file_sha256(path)}  {path.relative_to(folder).as_posix()}\n" for path in files)
    write_atomically(folder / SUMS, sums)
    return len(instances)


def _csv(rows: list[list[object]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def _network(size: Size, seed: int, data_dir: Path | None) -> tuple[FrozenNet, Tensor, Tensor]:
    """Return an exact network, and the test images and labels it may be asked about."""
    if size.zoo is not None:
        test = data.load("mnist", "test", data_dir)
        return exact.freeze(load(size.zoo).floats), test.images, test.labels
    parts = []
    for split in ("train", "test"):
        digits = data.load("digits", split, data_dir)
        some = digits.labels < size.classes
        means = avg_pool2d(digits.images[some].double(), digits.images.shape[-1] // size.side)
        parts.append((means.round().byte(), digits.labels[some]))
    (images, labels), (x, y) = parts
    settings: dict[str, object] = {
        "width": size.width, "depth": size.depth, "eps": size.eps, "seed": seed, "identity_init": False,
        "e1": 3, "e2": 25, "e3": 2,
    }  # fmt: skip
    names = list(map(str, range(size.classes)))
    return exact.freeze(train("digits-quick", images, labels, classes=names, settings=settings, device="cpu")), x, y


def scaled(network: FrozenNet) -> ReluNet:
    """Write an exact network as a ReLU network whose inputs are bytes / 256, and whose values shrink as much."""
    relu, level = to_relu(network), 2.0 ** -(8 + network.k)
    first, *rest = relu.layers
    layers = [Affine(first.weight * 2.0**-network.k, first.bias * level)]
    layers += [Affine(layer.weight, layer.bias * level) for layer in rest]
    return ReluNet(tuple(layers), relu.shape, relu.crop, 255 / 256, 0.0)


def _write_network(folder: Path, name: str, network: FrozenNet) -> list[str]:
    exact.save(network, folder / "exact" / f"{name}.safetensors")
    level = 2.0 ** -(8 + network.k)
    graph = Graph(GRAPH_CHUNK)
    x = graph.node("Flatten", "images", axis=1)
    for layer in network.layers:
        x = graph.distances(x, layer.weight.float() * level, 1, torch.float32)
        x = graph.node("Add", x, graph.constant(layer.bias.float() * level))
    graph.node("Neg", x, name="logits")
    images = Value("images", torch.float32, network.shape, "bytes / 256")
    logits = Value("logits", torch.float32, (network.classes,), "the largest one is the class")
    forms = [f"onnx/{name}-dist.onnx"]
    graph.save(folder / forms[0], images, [logits], {})
    relu = scaled(network)
    if sum(4 * layer.weight.shape[0] * layer.weight.shape[1] for layer in relu.layers) <= LARGEST_RELU:
        forms.append(f"onnx/{name}-relu.onnx")
        relu_to_onnx(relu, folder / forms[1])
    return forms


def _cases(network: FrozenNet, x: Tensor, y: Tensor, seed: int) -> Iterator[Case]:
    """Find the correct images, in order, for which a proof and a witness decide every factor."""
    floats, places = exact.as_floats(network), (network.predict(x) == y).nonzero()[:, 0]
    for some in places.split(FEW):
        images, labels = x[some], y[some]
        proofs = [exact.certificates(network, images, method) for method in ("box", "margin")]
        found = smallest(floats, images.float() / 255, labels, attack=Strong(seed=seed, stages=STAGES[:4]))
        for k, index in enumerate(some.tolist()):
            proof, pixels, label = (
                max((each[k] for each in proofs), key=lambda each: each.radius),
                images[k].numpy(),
                int(labels[k]),
            )
            witness = _witness(network, pixels, found.images[k], label) if found.broken[k] else None
            if witness is None:
                continue
            case = Case(index, pixels, label, proof, witness)
            reaches = [round(factor * case.radius) for factor in FACTORS]
            unsat = [reach for reach in reaches if reach < case.radius]
            if all(proved(network, pixels, label, each, proof.radius, proof.ball == "closed") for each in unsat):
                yield case


def _witness(network: FrozenNet, pixels: Whole, image: Tensor, label: int) -> Whole | None:
    """Move an attacked image (0–1) to the grid of witnesses, and outwards until its class is beyond rounding."""
    middle, away = pixels.astype(np.float64), image.double().numpy() * 255 - pixels
    for stretch in STRETCHES:
        point = np.clip(np.rint((middle + (1 + stretch) * away) * PARTS), 0, 255 * PARTS).astype(np.int64)
        if fooled(network, point, label):
            return point
    return None


def _write_case(folder: Path, name: str, network: FrozenNet, case: Case) -> Iterator[list[object]]:
    """Write an image, its proof and its witness, and the properties; give their rows of truth.csv."""
    stem = f"{name}-{case.index}"
    image, proof, witness = f"images/{stem}.png", f"certificates/{stem}.json", f"witnesses/{stem}.counterexample"
    Image.fromarray(case.pixels[0]).save(folder / image)
    write_atomically(folder / proof, json.dumps(case.certificate.json()) + "\n")
    logits = -outputs(network, case.witness, case.witness)[0]
    values = [*(("X", i, n) for i, n in enumerate(case.witness.ravel())), *(("Y", j, n) for j, n in enumerate(logits))]
    lines = [f"({letter}_{i} {text_of(Fraction(int(n), UNIT))})" for letter, i, n in values]
    write_atomically(folder / witness, "sat\n(" + "\n".join(lines) + ")\n")
    relu = scaled(network)
    for factor in FACTORS:
        reach = round(factor * case.radius)
        file = f"vnnlib/{stem}-{float(factor):g}.vnnlib"
        write_vnnlib(relu, folder / file, torch.from_numpy(case.pixels) / 256, Fraction(reach, 255 * PARTS), case.label)
        answer, evidence = ("sat", witness) if factor > 1 else ("unsat", proof)
        yield [
            file, answer, f"{float(factor):g}", text_of(Fraction(reach, UNIT)), case.label,
            f"exact/{name}.safetensors", image, evidence,
        ]  # fmt: skip
