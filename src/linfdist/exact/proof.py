"""`linfdist.certify` of exact networks: the same question and the same answer as for float networks."""

import math
from fractions import Fraction

import torch
from torch import Tensor

from ..certificates.certificate import Certificate, certify_any
from ..certificates.checks import check_labels
from ..certificates.chunks import ROWS
from ..certificates.prover import Eps
from ..eps import parse_eps, round_down
from .certificate import METHODS, box_certified_at, box_levels, certified_at, gaps, margin_levels
from .network import FrozenNet


@certify_any.register
def certify_exact(
    network: FrozenNet, x: Tensor, eps: Eps | None, y: Tensor | None, method: str, radii: bool
) -> Certificate:
    """Certify 8-bit images, uint8 (B, C, H, W), by an exact network.

    Proofs are about all images of the network's domain in the closed ball, those between the 8-bit levels included.
    Radii are on the 0–1 intensity scale, rounded down to float64. Boxes know whole levels only, so a radius may be one
    level less than the one that `certified` speaks of, but never below eps where that is certified.
    """
    if method not in METHODS or (method == "margin" and network.head is not None):
        able = METHODS if network.head is None else ("box",)
        raise ValueError(f"method = {method!r}: this exact network is certified by {' or '.join(able)}")
    if not isinstance(x, Tensor):
        raise TypeError(f"x must be a plain tensor, got {type(x).__name__}")
    if isinstance(eps, Tensor):
        raise TypeError("eps as a tensor, one number per pixel, is for float networks only")
    network.check_images(x)
    if y is not None:
        check_labels(network.classes, y, len(x))
    exact = None if eps is None else parse_eps(eps)
    parts = [_certify(network, few, exact, method, radii) for few in x.split(ROWS)]
    prediction, radius, certified = (torch.cat(column) for column in list(zip(*parts, strict=True))[:3])
    margin = None if network.head is not None else torch.cat([part[3] for part in parts])
    if exact is not None and y is not None:
        certified = certified & (prediction == y.to(torch.int64))
    return Certificate(prediction, radius, None if exact is None else certified, margin, network.domain)


def _certify(
    network: FrozenNet, x: Tensor, exact: Fraction | None, method: str, radii: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(prediction, radius, certified, margin_radius) of a few images; certified means nothing if there is no eps."""
    logits = network(x)
    prediction = logits.argmax(1)
    certified, radius = torch.zeros_like(prediction, dtype=torch.bool), torch.zeros(len(x), dtype=torch.float64)
    margin, levels = radius, torch.zeros_like(prediction)
    if network.head is None:
        gap = gaps(logits)
        levels = margin_levels(gap, network.steps)
        margin = radius = torch.tensor([_open(each, network.steps) for each in gap.tolist()], dtype=torch.float64)
        certified = certified_at(network, logits, exact) if exact is not None else certified
    if method == "box":
        if exact is not None:
            rest = (~certified).nonzero()[:, 0]
            certified[rest] = box_certified_at(network, x[rest], prediction[rest], exact)
        if radii:
            radius = torch.maximum(radius, _pixels(box_levels(network, x, prediction, levels)))
    if exact is not None:
        radius = torch.where(certified, radius.clamp(min=min(1.0, round_down(exact))), radius)
    return prediction, radius, certified, margin


def _open(gap: int, steps: int) -> float:
    """A float radius in pixels just below gap / (2 steps) levels, where the margin ends; 1 at most.

    It is below the rounded size of an attack of that many levels, too, which may succeed.
    """
    return min(1.0, max(0.0, math.nextafter(round_down(Fraction(gap, 255 * 2 * steps)), 0.0)))


def _pixels(levels: Tensor) -> Tensor:
    """Whole levels in pixels, rounded down."""
    return torch.tensor([round_down(Fraction(each, 255)) for each in levels.tolist()], dtype=torch.float64)
