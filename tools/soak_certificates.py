"""Certificates of random networks, attacked to the last float of what they claim."""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import linfdist as ld
from linfdist.attacks import attack
from linfdist.exact import FrozenNet, as_floats
from linfdist.files import save_tensors
from linfdist.models import PixelNet

from .soak_cases import IMAGES, Case

BEYOND = "four times the radius"  # where attacks may succeed
RANDOM = 256  # attempts of each kind
FEW_CORNERS = 9  # pixels: all corners of a ball are tried up to here


@dataclass
class Found:
    """What attacks have made of a case. broken: images that contradict their certificate, by the words for it."""

    counts: Counter[str] = field(default_factory=Counter)
    broken: dict[str, Tensor] = field(default_factory=dict)


def run_case(case: Case) -> Found:
    """Certify, then attack whatever was proved."""
    threads = torch.get_num_threads()
    torch.set_num_threads(case.about["threads"])
    flushed = case.about["flush"] and torch.set_flush_denormal(True)
    try:
        if case.session is None:
            proof = ld.certify(case.network, case.x, case.eps, method=case.method)
        else:
            proof = _stated(case.session, case.x)
        torch.set_num_threads(1)  # proved by several, attacked by one
        if flushed:
            torch.set_flush_denormal(False)  # proved by a thread that flushes, attacked by one that does not
        return _attack_all(case, proof)
    finally:
        torch.set_flush_denormal(False)
        torch.set_num_threads(threads)


def _stated(session: Any, x: Tensor) -> ld.Certificate:
    """Return what the graph states about images, as a certificate."""
    logits, radius = (torch.from_numpy(each) for each in session.run(None, {"images": x.numpy()}))
    return ld.Certificate(logits.argmax(1), radius, None)


def _attack_all(case: Case, proof: ld.Certificate) -> Found:
    found = Found(Counter({"networks": 1, "certificates": len(case.x)}))
    radius = proof.radius
    sound = radius.isfinite() & (radius >= 0)
    if not sound.all():
        found.broken["a radius is no number"] = case.x[~sound]
        return found
    reach = radius.clamp(max=1.0)[:, None, None, None].expand(case.x.shape)
    _attack(case, proof, reach, radius > 0, found, "radius")
    if case.eps is not None and proof.certified is not None:
        if isinstance(case.eps, Tensor):
            box = case.eps.double().broadcast_to(case.x.shape)
        else:
            exact = Fraction(case.eps)
            below = float(exact) if Fraction(float(exact)) <= exact else math.nextafter(float(exact), 0.0)
            box = torch.full(case.x.shape, below, dtype=torch.float64)
        _attack(case, proof, box, proof.certified, found, "eps")
    if (radius > 0).any():  # that these attacks break anything at all
        beyond = Found()
        _attack(case, proof, (4 * reach).clamp(max=1.0), radius > 0, beyond, BEYOND)
        found.counts["images broken at four times the radius"] += beyond.counts["broken"]
    del found.counts["broken"]
    return found


def _attack(case: Case, proof: ld.Certificate, reach: Tensor, claimed: Tensor, found: Found, what: str) -> None:
    """Try images within `reach` of those that are `claimed`; keep those whose class changes."""
    rows = claimed.nonzero()[:, 0]
    if not len(rows):
        return
    found.counts["certificates attacked"] += len(rows)
    x, prediction, reach = case.x[rows], proof.prediction[rows], reach[rows].double()
    if isinstance(case.network, FrozenNet):
        network, inside = case.network, _levels(case.network, x, reach)
        classes: Callable[[Tensor], Tensor] = lambda images: network(images).argmax(1)  # noqa: E731
        attempts = _integer_attempts(network, x, prediction, inside)
    else:
        classes, inside = _classes(case.network), _floats(x, reach)
        if (session := case.session) is not None:
            classes = lambda images: _stated(session, images).prediction  # noqa: E731
        attempts = _float_attempts(case.network, x, prediction, inside, reach, case.seed % 4 == 0)
    fooled = torch.zeros_like(prediction, dtype=torch.bool)
    for name, some in attempts:
        images = some.reshape(-1, *x.shape)  # (K, B, C, H, W)
        found.counts["attacked images"] += images.shape[0] * len(x)
        wrong = classes(images.flatten(0, 1)).view(-1, len(x)) != prediction
        fooled |= wrong.any(0)
        if wrong.any() and what != BEYOND:
            found.broken[f"{what} by {name}"] = torch.stack([x.expand_as(images)[wrong], images[wrong]])
            break
        if fooled.all() or (what == BEYOND and name.startswith("the attack")):
            break
    found.counts["broken"] += int(fooled.sum())


def _classes(network: PixelNet) -> Callable[[Tensor], Tensor]:
    """Return a function that classifies images.

    It gives -1 where a head, whose sums depend on how many images there are, gives several classes.
    """

    @torch.no_grad()
    def classes(images: Tensor) -> Tensor:
        found = network(images).argmax(1)
        if network.readout.lipschitz is None:
            few = 3 if len(images) <= IMAGES else 97
            alone = torch.cat([network(part).argmax(1) for part in images.split(few)])
            found = torch.where(found == alone, found, -1)
        return found

    return classes


Inside = Callable[[Tensor], Tensor]


def _floats(x: Tensor, reach: Tensor) -> Inside:
    """From any images to the nearest ones within `reach` (float64) of x in exact arithmetic, and within [0, 1]."""
    exact = x.double()

    def too_far(images: Tensor) -> Tensor:
        a, b = images.double(), exact
        near = a - b
        part = near - a
        rest = (a - (near - part)) - (b + part)  # Knuth: near + rest is the difference, exactly
        rest = torch.where(near < 0, -rest, rest)
        return (near.abs() > reach) | ((near.abs() == reach) & (rest > 0))

    def inside(images: Tensor) -> Tensor:
        lower, upper = (exact - reach).clamp(0, 1), (exact + reach).clamp(0, 1)
        moved = images.double().clamp(lower, upper).to(x.dtype).clamp(0, 1)
        for _ in range(3):
            moved = torch.where(too_far(moved), torch.nextafter(moved, x), moved)
        return torch.where(too_far(moved), x, moved)

    return inside


def _levels(network: FrozenNet, x: Tensor, reach: Tensor) -> Inside:
    """Do the same as `_floats` for whole levels, within the network's domain."""
    near = [math.floor(255 * Fraction(each)) for each in reach.flatten(1)[:, 0].tolist()]
    most = torch.tensor([k if Fraction(k, 255) <= 1 else 255 for k in near])[:, None, None, None]
    low, high = network.lower.long(), network.upper.long()

    def inside(images: Tensor) -> Tensor:
        moved = torch.minimum(torch.maximum(images.long(), x.long() - most), x.long() + most)
        return torch.minimum(torch.maximum(moved, low), high).to(torch.uint8)

    return inside


def _float_attempts(
    network: PixelNet, x: Tensor, prediction: Tensor, inside: Inside, reach: Tensor, thorough: bool
) -> Iterator[tuple[str, Tensor]]:
    with torch.no_grad():
        yield from _anywhere(x, inside, 9.0)
        yield "a coordinate search", _coordinates(network, x, prediction, inside, start=int(torch.randint(2, ())))
    classes = network(x[:1]).shape[1]
    for p in (8.0, 60.0, math.inf):
        for other in range(classes):
            yield f"sign steps at p = {p}", _sign_steps(network, x, prediction, inside, p, other, reach)
    if x.dtype == torch.float32:
        radii = [Fraction(min(1.0, each)) for each in reach.flatten(1).amin(1).tolist()]
        for name in ("pgd", "strong") if thorough else ("pgd",):
            yield f"the attack {name}", inside(attack(name)(network, x, prediction, radii).images)


def _integer_attempts(
    network: FrozenNet, x: Tensor, prediction: Tensor, inside: Inside
) -> Iterator[tuple[str, Tensor]]:
    yield from _anywhere(x, inside, 999.0)
    floats = as_floats(network)
    pixels = x.float() / 255
    for p in (8.0, 60.0):
        for other in range(floats.classes):
            start = pixels.clone().requires_grad_()
            z = floats(start, p)
            (slope,) = torch.autograd.grad((z[:, other] - z.gather(1, prediction[:, None])[:, 0]).sum(), start)
            yield f"a sign step at p = {p}", inside(x.long() + 999 * slope.nan_to_num().sign().long())


def _anywhere(x: Tensor, inside: Inside, far: float) -> Iterator[tuple[str, Tensor]]:
    """Corners of the balls, all of them if pixels are few, and random images inside. far: out of every ball."""
    pixels = x[0].numel()
    base = x.double()
    if pixels <= FEW_CORNERS:
        signs = torch.tensor(list(itertools.product((-far, far), repeat=pixels)), dtype=torch.float64)
        yield "a corner", inside(base + signs.view(-1, 1, *x.shape[1:]))
    shape = (RANDOM, *x.shape)
    corner = inside(base + far * torch.randn(shape).sign().double()).double()
    yield "a random corner", inside(corner)
    yield "a random inside", inside(base + (corner - base) * torch.rand(shape))
    yield "a few pixels", inside(torch.where(torch.rand(shape) < 0.3, corner, base))


def _sign_steps(
    network: PixelNet, x: Tensor, prediction: Tensor, inside: Inside, p: float, other: int, reach: Tensor
) -> Tensor:
    """Three steps up the lead of one class, the first as far as the ball goes."""
    images = x
    for step in (2.0, 1.0, 0.5):
        start = images.detach().clone().requires_grad_()
        with torch.enable_grad():
            z = network(start, p)
            lead = (z[:, other] - z.gather(1, prediction[:, None])[:, 0]).sum()
            (slope,) = torch.autograd.grad(lead, start)
        images = inside(images.double() + step * reach * slope.nan_to_num().sign())
    return images


def _coordinates(network: PixelNet, x: Tensor, prediction: Tensor, inside: Inside, start: int) -> Tensor:
    """Pixel by pixel, whichever end of its range leaves the smallest margin; `start`: the ends that all begin at."""
    ends = [inside(torch.full_like(x, end)) for end in (0.0, 1.0)]
    images = ends[start].clone() if start else x.clone()
    for pixel in torch.randperm(x[0].numel())[:40].tolist():
        tried = [images]
        for end in ends:
            moved = images.clone()
            moved.flatten(1)[:, pixel] = end.flatten(1)[:, pixel]
            tried.append(moved)
        margins = torch.stack([_margin(network(each), prediction) for each in tried])  # (3, B)
        best = margins.nan_to_num(posinf=torch.inf).argmin(0)
        images = torch.stack(tried)[best, torch.arange(len(x))]
    return images


def _margin(z: Tensor, prediction: Tensor) -> Tensor:
    best = z.gather(1, prediction[:, None])[:, 0]
    return best - z.scatter(1, prediction[:, None], -torch.inf).amax(1)


def save_failure(case: Case, found: Found, folder: Path) -> Path:
    """Keep everything that is needed to look at a contradiction again, and return the file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"certificate-{case.seed}.safetensors"
    tensors = {f"found/{name}": images for name, images in found.broken.items()}
    if isinstance(case.network, PixelNet):
        tensors |= {f"network/{name}": tensor for name, tensor in case.network.state_dict().items()}
    if isinstance(case.eps, Tensor):
        tensors["eps"] = case.eps
    again = f"python -m tools.soak --case {case.seed}"
    save_tensors(path, {**tensors, "x": case.x}, {"again": again, "about": case.about})
    return path
