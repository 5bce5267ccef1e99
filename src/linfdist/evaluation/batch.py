"""Evaluate a batch of images: certify all, attack those that are correct; watch a network during its training."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from ..attacks import Attack
from ..certificates import METHODS, Certificate, Certifier, certify, on_device
from ..certificates.checks import PROVED
from ..certificates.methods import contained
from ..eps import Eps
from ..models import Network, PixelNet
from ..recipes import Recipe
from ..runs.rows import Attempt, Row
from .settings import parse_methods


class Certifiers:
    """The certificates of a network by any methods, all for the network as it was when a method was first used.

    Images are bytes (B, C, H, W), labels int64 (B,), both on the CPU.
    """

    def __init__(self, network: Network) -> None:
        self.network = network
        self.certifiers: dict[str, Certifier] = {}

    def __call__(self, images: Tensor, labels: Tensor, eps: Eps, method: str, radii: bool) -> Certificate:
        """Certify images at eps, by the best of several methods; with `radii`, also find their radii."""
        x, names = self.network.from_bytes(images), strongest(parse_methods(method))
        for name in names:
            if name not in self.certifiers:
                self.certifiers[name] = Certifier(self.network, name)
        return best_of([self.certifiers[name](x, eps, labels.to(x.device), radii) for name in names])


@dataclass(frozen=True)
class Batch:
    """The results of a batch of images.

    rows: in the order of the images. attacked: what each attack made of the images (C, H, W), by index. seconds: the
    time that the certificates and each attack took.
    """

    rows: list[Row]
    attacked: dict[str, dict[int, Tensor]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)


def evaluate_batch(
    certifiers: Certifiers,
    images: Tensor,
    labels: Tensor,
    first: int,
    eps: Eps,
    method: str,
    attacks: Sequence[Attack],
    radii: bool = True,
    spare: bool = False,
) -> Batch:
    """Evaluate images uint8 (B, C, H, W) with labels (B,), whose indices in the data set are first, first + 1, ...

    Images that are misclassified without an attack are not attacked. radii: see `EvaluationSettings`. spare: costly
    methods run after the attacks, and only on images that are correct, unbroken, and not certified by a quick method.
    """
    start = time.perf_counter()
    quick = quick_part(method) if spare else method
    proof = certifiers(images, labels, eps, quick, radii)
    assert proof.certified is not None  # as eps was given
    margins = [None] * len(images) if proof.margin_radius is None else proof.margin_radius.tolist()
    seconds = {"certify": time.perf_counter() - start}
    correct = (proof.prediction.cpu() == labels).nonzero().flatten()
    attempts: list[dict[str, Attempt]] = [{} for _ in images]
    attacked: dict[str, dict[int, Tensor]] = {}
    for attack in attacks:
        start = time.perf_counter()
        attacked[attack.name] = {}
        if len(correct):
            made, tried = attempt(certifiers.network, attack, images[correct], labels[correct], eps)
            for position, image, each in zip(correct.tolist(), made, tried, strict=True):
                attempts[position][attack.name] = each
                attacked[attack.name][first + position] = image
        seconds[attack.name] = time.perf_counter() - start
    if quick != method:
        start = time.perf_counter()
        broken = torch.tensor([any(each.broken for each in tried.values()) for tried in attempts], dtype=torch.bool)
        left = correct[~(proof.certified.cpu() | broken)[correct]]
        more = certifiers(images[left], labels[left], eps, method, radii)
        proof = _with_more(proof, left.to(proof.radius.device), more)
        seconds["certify"] += time.perf_counter() - start
    assert proof.certified is not None
    columns = zip(
        labels.tolist(), proof.prediction.tolist(), proof.radius.tolist(), proof.certified.tolist(), margins, attempts,
        strict=True,
    )  # fmt: skip
    return Batch([Row(first + k, *values) for k, values in enumerate(columns)], attacked, seconds)


def attempt(network: Network, attack: Attack, images: Tensor, labels: Tensor, eps: Eps) -> tuple[Tensor, list[Attempt]]:
    """Attack images uint8 (B, C, H, W); return the attacked pixels and the results."""
    x = network.from_bytes(images)
    found = attack(network, x, labels.to(x.device), eps)
    results = zip(found.broken.tolist(), found.prediction.tolist(), found.size.tolist(), strict=True)
    return network.to_pixels(found.images), [Attempt(*each) for each in results]


def quick_part(method: str) -> str:
    """Return the quick method to run on every image first; the method itself if it is quick."""
    return "box" if any(METHODS[each].costly for each in parse_methods(method)) else method


def strongest(methods: Sequence[str]) -> list[str]:
    """Return the methods that no other one contains: "crown" contains "box", for example."""
    return [name for name in dict.fromkeys(methods) if not any(name in contained(other) for other in methods)]


def best_of(proofs: Sequence[Certificate]) -> Certificate:
    """Combine several certificates of the same images: each of them holds on its own, image by image.

    A certificate whose prediction differs from that of the first does not count. `margin_radius` is that of the first.
    """
    best = proofs[0]
    for proof in proofs[1:]:
        same = proof.prediction == best.prediction
        radius = torch.maximum(best.radius, proof.radius.where(same, 0.0))
        assert best.certified is not None  # as eps was given
        assert proof.certified is not None
        best = replace(best, radius=radius, certified=best.certified | (proof.certified & same))
    return best


def _with_more(proof: Certificate, rows: Tensor, more: Certificate) -> Certificate:
    """Return the certificates; for the images `rows`, the better of their own and that of `more`."""
    best, columns = best_of([proof[rows], more]), ("radius", "certified")
    return replace(proof, **{name: getattr(proof, name).index_copy(0, rows, getattr(best, name)) for name in columns})


_BATCH = 512


def watch(recipe: Recipe) -> Callable[[PixelNet, Tensor, Tensor], dict[str, float]]:
    """Make the function that `training.train` calls after every epoch of this recipe.

    It returns clean and certified accuracy in percent, of images uint8 (N, C, H, W). The certificate is the cheapest
    one that tells how far the training is: the margin; or the box, if the recipe trains on boxes, or clips pixels,
    which only the box gains from.
    """
    method = "box" if recipe.e4 or recipe.clip else "margin"

    @torch.no_grad()
    def look(network: PixelNet, images: Tensor, labels: Tensor) -> dict[str, float]:
        if images.device.type not in PROVED:
            network, images, labels = on_device(network, "cpu"), images.cpu(), labels.cpu()
        clean = certified = 0
        for start in range(0, len(images), _BATCH):
            x, y = network.from_bytes(images[start : start + _BATCH]), labels[start : start + _BATCH]
            proof = certify(network, x, recipe.eps, y, method=method, radii=False)
            assert proof.certified is not None  # as eps was given
            clean += int((proof.prediction == y).sum())
            certified += int(proof.certified.sum())
        return {"clean": 100 * clean / len(images), "certified": 100 * certified / len(images)}

    return look
