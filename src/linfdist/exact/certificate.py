"""Certificates of exact networks, without rounding before the head, as data and in files."""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..certificates.images import Refused, read_for
from ..certificates.proofs import ROWS
from ..data.samples import check_labels
from ..eps import round_down
from ..errors import LinfdistError
from ..files import MOST_BYTES, parse_json, read_bytes
from ..models.base import Columns
from ..ops.dist import dist_box
from .bounds import largest
from .network import FrozenNet, image_sha256

FORMAT = "linfdist-certificate-1"
# Every checker has its own formula for each of them (`twin.py`, proofs/, export/page/): whoever adds one adds it to
# all of those and to the format (docs/format.md). An entry in `linfdist.certificates` alone would not be enough.
EXACT_METHODS = ("margin", "box")
PARTS = (
    1024  # of a step of the pixels' grid: how finely the ends of boxes are looked at before layers round them outwards
)
_FLOAT32_WHOLE = 2**24  # float32 holds all whole numbers up to here


@dataclass(frozen=True)
class ExactCertificate:
    """The class is the same for all images of the domain within `radius` of this one, in ℓ∞ and levels (1/255 pixel).

    margin: best minus second-best logit, in grid units. method "margin": one level moves a logit by at most `steps`, so
    the class holds closer than radius = margin / (2 steps) (`ball` is "open"). method "box": intervals through all
    layers; radius is the largest whole number for which they prove the class (`ball` is "closed"). levels: the largest
    whole number of levels by which every pixel may change.

    Networks with a head have method "box" alone and no margin; radius is a number for which intervals prove the class,
    in whatever order float64 sums are executed.
    """

    image: str  # sha256
    shape: tuple[int, int, int]
    model: str  # sha256
    prediction: int
    steps: int
    margin: int | None
    method: str
    radius: Fraction
    ball: str
    levels: int
    domain: str | None  # sha256 of the least and the largest image; None: all 8-bit images

    def json(self) -> dict[str, Any]:
        """Return the certificate as its file holds it."""
        return {
            "format": FORMAT,
            "image_sha256": self.image,
            "image_shape": list(self.shape),
            "model_sha256": self.model,
            "class": self.prediction,
            "grid": f"1/{255 * self.steps} pixel",
            "margin": self.margin,
            "method": self.method,
            "radius": str(self.radius),
            "ball": self.ball,
            "levels": self.levels,
            "domain_sha256": self.domain,
        }


class Undecided(LinfdistError, ValueError):
    """The two best logits of an image are so close that the order of summation may decide: it has no certain class."""

    def __init__(self, image: int) -> None:
        super().__init__(
            f"image {image}: its two best logits are closer than rounding in float64, so that its class may depend on "
            "the order of summation, and nothing can be certified"
        )
        self.image = image


def certificates(network: FrozenNet, images: Tensor, method: str = "box") -> list[ExactCertificate]:
    """Return one certificate for each of the images uint8 (B, C, H, W), all of them in the network's domain.

    Raises `Undecided` if a network with a head has no certain class for an image.
    """
    _check_method(network, method)
    logits = network(images)
    predictions = logits.argmax(1)
    margins: list[int | None]
    if network.head is None:
        gap = gaps(logits)
        margins = gap.tolist()
        levels = margin_levels(gap, network.steps)
    else:
        margins, levels = [None] * len(images), torch.zeros_like(predictions)
        uncertain = ~box_holds(network, images, predictions, levels)
        if uncertain.any():
            raise Undecided(int(uncertain.nonzero()[0]))
    if method == "box":
        levels = box_levels(network, images, predictions, levels)
    domain = network.domain
    return [
        ExactCertificate(
            image=image_sha256(image),
            shape=network.shape,
            model=network.sha256,
            prediction=prediction,
            steps=network.steps,
            margin=margin,
            method=method,
            radius=Fraction(whole) if margin is None or method == "box" else Fraction(margin, 2 * network.steps),
            ball="open" if method == "margin" else "closed",
            levels=whole,
            domain=domain,
        )
        for image, prediction, margin, whole in zip(images, predictions.tolist(), margins, levels.tolist(), strict=True)
    ]


def _check_method(network: FrozenNet, method: str) -> None:
    able = [name for name in EXACT_METHODS if name != "margin" or network.head is None]
    if method not in able:
        raise ValueError(f"method = {method!r}: this exact network is certified by {' or '.join(able)}")


class ExactProver:
    """The proofs of an exact network, for `linfdist.certify`.

    They are about all images of the network's domain in the closed ball, those between the 8-bit levels included. Radii
    are on the 0–1 intensity scale, rounded down to float64. Boxes prove whole levels only, so a radius may be up to one
    level less than what `certified` proves, but never below eps where that is certified.
    """

    def __init__(self, network: FrozenNet, method: str) -> None:
        _check_method(network, method)
        self.network, self.method = network, method

    def __call__(self, x: Tensor, eps: Fraction | Tensor | None, y: Tensor | None, radii: bool) -> Columns:
        """Prove what `linfdist.certify` says of 8-bit images, uint8 (B, C, H, W)."""
        if isinstance(eps, Tensor):
            raise TypeError("eps as a tensor, one number per pixel, is for float networks only")
        self.network.check_images(x)
        if y is not None:
            check_labels(self.network.classes, y, len(x))
        parts = [self._prove(few, eps, radii) for few in x.split(ROWS)]
        prediction, radius, certified, margin = (torch.cat(column) for column in zip(*parts, strict=True))
        if y is not None:
            certified = certified & (prediction == y.to(torch.int64))
        return prediction, radius, None if eps is None else certified, None if self.network.head is not None else margin

    def _prove(self, x: Tensor, eps: Fraction | None, radii: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Prove it for a few images; ignore certified if there is no eps, and the margin if there is a head."""
        network, logits = self.network, self.network(x)
        prediction = logits.argmax(1)
        certified, radius = torch.zeros_like(prediction, dtype=torch.bool), torch.zeros(len(x), dtype=torch.float64)
        margin, levels = radius, torch.zeros_like(prediction)
        if network.head is None:
            gap = gaps(logits)
            levels = margin_levels(gap, network.steps)
            margin = radius = torch.tensor([_open(each, network.steps) for each in gap.tolist()], dtype=torch.float64)
            certified = certified_at(network, logits, eps) if eps is not None else certified
        if self.method == "box":
            if eps is not None:
                rest = (~certified).nonzero()[:, 0]
                certified[rest] = box_certified_at(network, x[rest], prediction[rest], eps)
            if radii:
                proved = box_levels(network, x, prediction, levels).tolist()
                proved = [round_down(Fraction(each, 255)) for each in proved]
                radius = torch.maximum(radius, torch.tensor(proved, dtype=torch.float64))
        if eps is not None:
            radius = torch.where(certified, radius.clamp(min=min(1.0, round_down(eps))), radius)
        return prediction, radius, certified, margin


def _open(gap: int, steps: int) -> float:
    """Return a float radius just below gap / (2 steps) levels, where the margin's proof ends; at most 1.

    It is also below the rounded size of an attack of that many levels, which may succeed.
    """
    return min(1.0, max(0.0, math.nextafter(round_down(Fraction(gap, 255 * 2 * steps)), 0.0)))


def gaps(logits: Tensor) -> Tensor:
    """Return best minus second-best logit, (B,) int64: both are integers, so this is exact."""
    best = logits.long().topk(2, dim=1).values
    return best[:, 0] - best[:, 1]


def margin_levels(gap: Tensor, steps: int) -> Tensor:
    """Count the levels that the margin proves, (B,): the largest whole n >= 0 with 2 n steps < gap, or 0."""
    return (gap - 1).clamp_min(0).div(2 * steps, rounding_mode="floor").clamp_max(255)


def certified_at(network: FrozenNet, logits: Tensor, eps: Fraction) -> Tensor:
    """Return where the margin proves the class on the closed eps-ball (pixels of [0, 1]): (B,) bool.

    The ball includes real images. The network must be without a head.
    """
    return gaps(logits) > (2 * eps * 255 * network.steps).__floor__()


def box_certified_at(network: FrozenNet, images: Tensor, predictions: Tensor, eps: Fraction) -> Tensor:
    """Return where intervals prove the class on the closed eps-ball of real images (pixels of [0, 1]): (B,) bool."""
    network.check_images(images)
    spread = (eps * 255 * 2**network.k * PARTS).__ceil__()
    return _holds(network, images, predictions, torch.full_like(predictions, spread))


def box_levels(network: FrozenNet, images: Tensor, predictions: Tensor, proved: Tensor) -> Tensor:
    """Find the largest level that intervals prove for each image, by bisection from what is already proved.

    A smaller ball lies inside a larger one, and so do its intervals; in the head up to rounding, but what is returned
    was proved itself.
    """
    proved, failed = proved.clone(), torch.full_like(proved, 256)
    while (proved + 1 < failed).any():
        middle = (proved + failed) // 2
        holds = box_holds(network, images, predictions, middle)
        proved, failed = torch.where(holds, middle, proved), torch.where(holds, failed, middle)
    return proved


def box_holds(network: FrozenNet, images: Tensor, predictions: Tensor, levels: Tensor) -> Tensor:
    """Return whether intervals prove that no image of the domain within `levels` (B,) has another class: (B,) bool."""
    return _holds(network, images, predictions, (levels << network.k) * PARTS)


def _holds(network: FrozenNet, images: Tensor, predictions: Tensor, spread: Tensor) -> Tensor:
    """Do the same as `box_holds` for a radius `spread` (B,), in parts of the pixels' grid.

    The float kernels do the work: all values are whole numbers that the float type holds, so every operation is exact.
    """
    pixels, least, most = ((values.long() << network.k) * PARTS for values in (images, network.lower, network.upper))
    apart, dtype = spread[:, None, None, None], _float_type(network)
    low, high = torch.maximum(pixels - apart, least), torch.minimum(pixels + apart, most)
    low = network.stem.parts(low, PARTS).div(PARTS, rounding_mode="floor").to(dtype)
    high = -(-network.stem.parts(high, PARTS)).div(PARTS, rounding_mode="floor").to(dtype)
    for layer in network.layers:
        bias = layer.bias.to(dtype)
        near, far = dist_box(low, high, layer.weight.to(dtype))
        low, high = near + bias, far + bias  # (B, O)
    if network.head is not None:
        return network.head.proves(low.double(), high.double(), predictions)
    low, high = network.summed(low.double()), network.summed(high.double())
    own = high.gather(1, predictions[:, None])  # logits are -y: the largest -logit of the class itself
    others = low.scatter(1, predictions[:, None], torch.inf)
    return (others > own).all(1)


def _float_type(network: FrozenNet) -> torch.dtype:
    sizes = [largest(layer.low, layer.high, layer.weight, layer.mask, layer.bias.long()) for layer in network.layers]
    return torch.float32 if max(sizes) < _FLOAT32_WHOLE else torch.float64


def certificates_of_files(
    network: FrozenNet, paths: Sequence[str | os.PathLike[str]], method: str = "box"
) -> tuple[list[ExactCertificate], Refused]:
    """Certify image files; return their certificates, and the files that are refused or have no certain class."""
    taken, images, refused = read_for(network, paths)
    while images is not None and len(taken):
        try:
            return certificates(network, images, method), refused
        except Undecided as error:
            path = taken.pop(error.image)
            refused[path] = f"{path}: {error}"
            images = torch.cat([images[: error.image], images[error.image + 1 :]])
    return [], refused


def read_certificate(path: Path, image_sha256: str) -> dict[str, Any]:
    """Find the certificate of an image in a file that holds one, or several, one per line."""
    content = read_bytes(path, MOST_BYTES).strip()
    parts = content.splitlines() if b"\n{" in content else [content]
    certificates = [parse_json(part, str(path)) for part in parts]
    if not all(isinstance(each, dict) for each in certificates):
        raise ValueError(f"{path} holds no certificate: a JSON object is expected, or one per line")
    found = [each for each in certificates if each.get("image_sha256") == image_sha256]
    if len(found) != 1:
        count = "no certificate" if not found else f"{len(found)} certificates"
        raise ValueError(f"{path} holds {count} of this image, whose sha256 is {image_sha256}: one is expected")
    return found[0]
