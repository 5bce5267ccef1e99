"""Check a benchmark's folder again: its files, every proof by the twin, every witness in whole numbers."""

import csv
import json
import math
import re
from fractions import Fraction
from pathlib import Path

import numpy as np

from .. import exact
from ..data import read_image
from ..exact import FrozenNet, twin
from ..files import file_sha256
from .truth import PARTS, UNIT, Whole, ball, fooled, outputs, proved

SUMS = "SHA256SUMS"
TRUTH = ("onnx", "vnnlib", "answer", "factor", "epsilon", "label", "network", "image", "evidence")


def check(folder: Path) -> int:
    """Check every instance of the benchmark in a folder; return how many there are. ValueError names what is wrong."""
    for line in (folder / SUMS).read_text(encoding="utf-8").splitlines():
        sha256, name = line.split("  ", 1)
        if file_sha256(folder / name) != sha256:
            raise ValueError(f"{folder / name}: its sha256 is not that of {SUMS}")
    with (folder / "truth.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    with (folder / "instances.csv").open(encoding="utf-8", newline="") as file:
        if [line[:2] for line in csv.reader(file)] != [[row["onnx"], row["vnnlib"]] for row in rows]:
            raise ValueError(f"{folder}: instances.csv and truth.csv list different instances")
    for row in {tuple(row.values())[1:]: row for row in rows}.values():  # both forms of the network have one answer
        try:
            _check(folder, row)
        except ValueError as error:
            raise ValueError(f"{folder / row['vnnlib']}: {error}") from None
    return len(rows)


def _check(folder: Path, row: dict[str, str]) -> None:
    path, label = folder / row["network"], int(row["label"])
    network = exact.load(path)
    pixels = read_image(folder / row["image"], network.shape[0]).numpy()
    reach = in_parts(row["epsilon"])
    low, high = ball(pixels, reach)
    _check_property((folder / row["vnnlib"]).read_text(encoding="utf-8"), low, high, label, network.classes)
    evidence = (folder / row["evidence"]).read_text(encoding="utf-8")
    if row["answer"] == "unsat":
        proof = json.loads(evidence)
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


def _check_property(text: str, low: Whole, high: Whole, label: int, classes: int) -> None:
    """Compare a VNN-LIB file with the ball and the class it should be about."""
    ends = {(side, int(i)): in_parts(n) for side, i, n in re.findall(r"\(assert \(([<>])= X_(\d+) ([\d.]+)\)\)", text)}
    expected = {(">", i): int(n) for i, n in enumerate(low.ravel())}
    expected |= {("<", i): int(n) for i, n in enumerate(high.ravel())}
    others = [int(j) for j in re.findall(rf"\(>= Y_(\d+) Y_{label}\)", text)]
    if ends != expected or others != [j for j in range(classes) if j != label]:
        raise ValueError("the file is not about this ball and class")


def read_witness(text: str) -> tuple[Whole, Whole]:
    """Read a counterexample as VNN-COMP writes it: its pixels and logits, in parts."""
    pairs = re.findall(r"\(([XY])_\d+ (-?[\d.]+)\)", text)
    point, logits = (np.array([in_parts(n) for kind, n in pairs if kind == letter], np.int64) for letter in "XY")
    return point, logits


def in_parts(text: str) -> int:
    """Read a decimal as a whole number of parts; ValueError if it is none."""
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
