"""One row per image; everything that is reported is made from rows."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ..attacks import Attack, Attacked
from ..certificates import Certificate, certify
from ..eps import parse_eps
from ..models import DistNet, PixelNet
from .summary import Row

_KINDS: dict[str, tuple[type, ...]] = {
    "index": (int,),
    "label": (int,),
    "prediction": (int,),
    "margin_radius": (float, type(None)),
    "radius": (float,),
    "certified": (bool,),
    "attacks": (dict,),
}
_ATTACK_KINDS: dict[str, tuple[type, ...]] = {"broken": (bool,), "prediction": (int,), "size": (float,)}


@dataclass(frozen=True)
class Examined:
    """A batch of images, examined.

    rows: in order; attacked: per attack, for the images (by index) that it was run on, its result (C, H, W);
    seconds: spent on certificates and on each attack.
    """

    rows: list[Row]
    attacked: dict[str, dict[int, Tensor]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)


def examine(
    network: PixelNet,
    images: Tensor,
    labels: Tensor,
    first: int,
    eps: str,
    method: str,
    attacks: Sequence[Attack],
) -> Examined:
    """The rows of images uint8 (B, C, H, W) with labels (B,), whose indices in the data set are first, first + 1, ...

    Images that are classified wrongly are not attacked.
    """
    x, y = as_pixels(network, images), labels.to(next(network.parameters()).device)
    seconds: dict[str, float] = {}
    start = time.perf_counter()
    proof, margin = prove(network, x, y, eps, method)
    assert proof.certified is not None  # as eps was given
    rows: list[Row] = [
        {"index": first + k, "label": label, "prediction": prediction, "margin_radius": margin_radius,
         "radius": radius, "certified": certified, "attacks": {}}
        for k, (label, prediction, margin_radius, radius, certified) in enumerate(
            zip(y.tolist(), proof.prediction.tolist(), margin.radius.tolist(), proof.radius.tolist(),
                proof.certified.tolist(), strict=True)
        )
    ]  # fmt: skip
    seconds["certify"] = time.perf_counter() - start
    correct = (proof.prediction == y).nonzero().flatten()
    attacked: dict[str, dict[int, Tensor]] = {}
    for attack in attacks:
        start = time.perf_counter()
        attacked[attack.name] = {}
        if len(correct):
            found = attack(network, x[correct], y[correct], parse_eps(eps))
            attacked[attack.name] = _enter(
                rows, correct.tolist(), attack.name, found, predictions(network, found.images)
            )
        seconds[attack.name] = time.perf_counter() - start
    return Examined(rows, attacked, seconds)


def prove(network: PixelNet, x: Tensor, y: Tensor, eps: str, method: str) -> tuple[Certificate, Certificate]:
    """What the method and what the margin prove.

    Bounds of a head are searched for separately and are not monotone, so there the better of the two is taken for each
    image: both are proofs. For plain nets `certify` starts at the margin itself, which the invariants check.
    """
    margin = certify(network, x, eps, y, method="margin")
    if method == "margin":
        return margin, margin
    proof = certify(network, x, eps, y, method=method)
    if isinstance(network, DistNet):
        return proof, margin
    assert proof.certified is not None  # as eps was given
    assert margin.certified is not None
    radius = torch.maximum(proof.radius, margin.radius)
    return Certificate(proof.prediction, radius, proof.certified | margin.certified), margin


def _enter(rows: list[Row], positions: list[int], name: str, found: Attacked, classes: list[int]) -> dict[int, Tensor]:
    """Write an attack's results into the rows at these positions; its images by index."""
    columns = zip(positions, found.broken.tolist(), found.size.tolist(), classes, strict=True)
    for position, broken, size, prediction in columns:
        rows[position]["attacks"][name] = {"broken": broken, "prediction": prediction, "size": size}
    return {rows[position]["index"]: image for position, image in zip(positions, found.images, strict=True)}


def as_pixels(network: PixelNet, images: Tensor) -> Tensor:
    """Bytes as the pixels in [0, 1] that the network takes."""
    weight = next(network.parameters())
    return images.to(weight.device).to(weight.dtype) / 255


@torch.no_grad()
def predictions(network: PixelNet, x: Tensor) -> list[int]:
    """The classes of images, at p = inf."""
    return network(x).argmax(1).tolist()


def check_row(row: Any, index: int, attacks: Sequence[str]) -> Row:
    """A row read from a file; ValueError unless it is one of this image and has all that was asked for."""
    if not isinstance(row, dict) or row.keys() != _KINDS.keys():
        raise ValueError(f"image {index} has no row with the keys {', '.join(_KINDS)}")
    _check_kinds(row, _KINDS, f"the row of image {index}")
    if row["index"] != index:
        raise ValueError(f"the row of image {row['index']} is where that of image {index} should be")
    expected = set(attacks) if row["prediction"] == row["label"] else set()
    if row["attacks"].keys() != expected:
        found = ", ".join(row["attacks"]) or "none"
        raise ValueError(f"the row of image {index} has attacks {found}; expected {', '.join(attacks) or 'none'}")
    for name, result in row["attacks"].items():
        where = f"the row of image {index}, attack {name},"
        if not isinstance(result, dict) or result.keys() != _ATTACK_KINDS.keys():
            raise ValueError(f"{where} must have the keys {', '.join(_ATTACK_KINDS)}")
        _check_kinds(result, _ATTACK_KINDS, where)
    return row


def _check_kinds(values: Row, kinds: dict[str, tuple[type, ...]], where: str) -> None:
    for name, allowed in kinds.items():
        if type(values[name]) not in allowed:  # a bool is no number here
            raise ValueError(f"{where} has {name} = {values[name]!r}")
        if type(values[name]) is float and not 0 <= values[name] < float("inf"):
            raise ValueError(f"{where} has {name} = {values[name]!r}: must be finite and not negative")
