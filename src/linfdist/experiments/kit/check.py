"""Check a benchmark's folder again: its files, every proof by the twin, every witness in whole numbers."""

import csv
import math
import re
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np

from ... import exact
from ...data import read_image
from ...exact import FrozenNet, twin
from ...exact.stem import Stem
from ...files import MOST_BYTES, excerpt, file_sha256, parse_json, read_bytes
from ...theory.verifiers import vnnlib
from .onnx_files import check_file, runs_here
from .truth import PARTS, UNIT, Whole, ball, fooled, outputs, proved

SUMS = "SHA256SUMS"
TRUTH = ("onnx", "vnnlib", "answer", "factor", "epsilon", "label", "network", "image", "evidence")
FILES = ("onnx", "vnnlib", "network", "image", "evidence")  # the columns that name one
_DECIMAL = re.compile(r"-?[0-9]{1,9}(\.[0-9]{1,40})?")


def check(folder: Path, tell: Callable[[str], object] = print) -> int:
    """Check every instance of the benchmark in a folder; return how many there are. ValueError names what is wrong.

    Each ONNX file is run at the ends of its balls and at its witnesses. Without onnxruntime, which `tell` then says,
    only its sha256 is compared.
    """
    named = set()
    for line in _text(folder / SUMS).splitlines():
        sha256, _, name = line.partition("  ")
        if file_sha256(folder / name) != sha256:
            raise ValueError(f"{folder / name}: its sha256 is not that of {SUMS}")
        named.add(name)
    try:
        rows = list(csv.DictReader(_text(folder / "truth.csv").splitlines(), strict=True))
        instances = [line[:2] for line in csv.reader(_text(folder / "instances.csv").splitlines(), strict=True)]
    except csv.Error as error:
        raise ValueError(f"{folder}: truth.csv or instances.csv is not valid CSV ({error})") from None
    for place, row in enumerate(rows, start=1):
        if tuple(row) != TRUTH or not {row[key] for key in FILES} <= named or row["answer"] not in ("sat", "unsat"):
            raise ValueError(
                f"{folder}: row {place} of truth.csv must have {', '.join(TRUTH)}, files of {SUMS}, and the answer sat "
                "or unsat"
            )
    if instances != [[row["onnx"], row["vnnlib"]] for row in rows]:
        raise ValueError(f"{folder}: instances.csv and truth.csv list different instances")
    for row in {tuple(row.values())[1:]: row for row in rows}.values():  # both forms of the network have one answer
        try:
            _check(folder, row)
        except ValueError as error:
            raise ValueError(f"{folder / row['vnnlib']}: {error}") from None
    if not runs_here():
        tell("of the ONNX files only the sha256 was compared: to run them too, pip install onnx onnxruntime")
        return len(rows)
    files = {row["onnx"]: row["network"] for row in rows}
    for name, file in files.items():
        network = exact.load(folder / file)
        points = [point for row in rows if row["onnx"] == name for point in _points(folder, row, network)]
        check_file(folder / name, network, points)
    tell(f"run: {len(files)} ONNX files, whose logits at ends of balls and at witnesses are the integer network's")
    return len(rows)


def _points(folder: Path, row: dict[str, str], network: FrozenNet) -> Iterator[Whole]:
    """List the points of a checked instance at which its ONNX file is run, in parts: the ball's ends, the witness."""
    pixels = read_image(folder / row["image"], network.shape[0]).numpy()
    yield from (end.ravel() for end in ball(pixels, in_parts(row["epsilon"])))
    if row["answer"] == "sat":
        yield read_witness(_text(folder / row["evidence"]))[0]


def _text(path: Path) -> str:
    return read_bytes(path, MOST_BYTES).decode()


def _check(folder: Path, row: dict[str, str]) -> None:
    path = folder / row["network"]
    network = exact.load(path)
    if network.head is not None or network.count > 1 or network.stem != Stem(network.k) or not network.whole_cube:
        raise ValueError("its network must be of plain layers, for every image")
    if row["label"] not in map(str, range(network.classes)):
        raise ValueError(f"label = {excerpt(row['label'])}: must be a class of the network, 0 to {network.classes - 1}")
    label = int(row["label"])
    pixels = read_image(folder / row["image"], network.shape[0]).numpy()
    reach = in_parts(row["epsilon"])
    low, high = ball(pixels, reach)
    box = [(Fraction(int(a), UNIT), Fraction(int(b), UNIT)) for a, b in zip(low.ravel(), high.ravel(), strict=True)]
    if _text(folder / row["vnnlib"]) != vnnlib(box, label, network.classes):
        raise ValueError("the file is not about this ball and class")
    evidence = _text(folder / row["evidence"])
    if row["answer"] == "unsat":
        proof = parse_json(evidence, row["evidence"])
        twin.verify(proof, pixels, path)
        if proof["class"] != label:
            raise ValueError(f"its certificate is of class {proof['class']}, not {label}")
        if not proved(network, pixels, label, reach, Fraction(proof["radius"]), proof["ball"] == "closed"):
            raise ValueError("its certificate does not hold for the whole ball, or only by less than rounding")
    else:
        point, logits = read_witness(evidence)
        if (point < low.ravel()).any() or (point > high.ravel()).any():
            raise ValueError("its witness is outside the ball")
        if not fooled(network, point, label) or (logits != -outputs(network, point, point)[0]).any():
            raise ValueError("its witness has not the logits that it states, or the label's class up to rounding")


def read_witness(text: str) -> tuple[Whole, Whole]:
    """Read a counterexample as VNN-COMP writes it: its pixels and logits, in parts."""
    pairs = re.findall(r"\(([XY])_\d+ (-?[\d.]+)\)", text)
    point, logits = (np.array([in_parts(n) for kind, n in pairs if kind == letter], np.int64) for letter in "XY")
    return point, logits


def in_parts(text: str) -> int:
    """Read a decimal as a whole number of parts; ValueError if it is none."""
    if _DECIMAL.fullmatch(text) is None:  # Fraction takes "1e999999999", for as long as that takes
        raise ValueError(f"{excerpt(text)} is no decimal, such as 0.25")
    value = Fraction(text) * UNIT
    if value.denominator != 1:
        raise ValueError(f"{text} is no multiple of 1/{UNIT}")
    return value.numerator


def text_of(value: Fraction) -> str:
    """Write a multiple of 1/UNIT as a decimal, exactly."""
    digits = UNIT.bit_length() - 1
    whole = abs(value) * 10**digits
    text = f"{whole.numerator // 10**digits}.{whole.numerator % 10**digits:0{digits}}".rstrip("0").rstrip(".")
    return f"-{text}" if value < 0 else text


def logits_at(network: FrozenNet, point: list[Fraction]) -> list[Fraction]:
    """Compute the logits of any rational image, scaled as in the files: what a verifier's counterexample is worth."""
    parts = math.lcm(PARTS, *(value.denominator for value in point))
    values = np.array([int(value * 256 * parts) for value in point], dtype=object)
    least, _ = outputs(network, values, values, parts)
    return [Fraction(-int(n), 256 * parts) for n in least]
