"""Examine a batch of images: certify them, and attack those that are classified correctly."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from ..attacks import Attack
from ..certificates import Certificate
from ..eps import parse_eps
from ..runs.rows import Attempt, Row
from .subject import Subject, best_of


@dataclass(frozen=True)
class Examined:
    """What is known of a batch of images.

    rows: in the order of the images. attacked: what each attack made of the images (C, H, W), by index. seconds: the
    time that the certificates and each attack took.
    """

    rows: list[Row]
    attacked: dict[str, dict[int, Tensor]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)


def examine(
    subject: Subject,
    images: Tensor,
    labels: Tensor,
    first: int,
    eps: str,
    method: str,
    attacks: Sequence[Attack],
    radii: bool = True,
    spare: bool = False,
) -> Examined:
    """Examine images uint8 (B, C, H, W) with labels (B,), whose indices in the data set are first, first + 1, ...

    Images that are misclassified as they are are not attacked. radii: see `EvaluationSettings`. spare: costly proofs
    are tried after the attacks, and only of images that are right, not broken, and not certified by a quick one.
    """
    start = time.perf_counter()
    quick = subject.quick(method) if spare else method
    proof = subject.prove(images, labels, eps, quick, radii)
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
            made, tried = attempt(subject, attack, images[correct], labels[correct], eps)
            for position, image, each in zip(correct.tolist(), made, tried, strict=True):
                attempts[position][attack.name] = each
                attacked[attack.name][first + position] = image
        seconds[attack.name] = time.perf_counter() - start
    if quick != method:
        start = time.perf_counter()
        broken = torch.tensor([any(each.broken for each in tried.values()) for tried in attempts], dtype=torch.bool)
        left = correct[~(proof.certified.cpu() | broken)[correct]]
        more = subject.prove(images[left], labels[left], eps, method, radii)
        proof = _with_more(proof, left.to(proof.radius.device), more)
        seconds["certify"] += time.perf_counter() - start
    assert proof.certified is not None
    columns = zip(
        labels.tolist(), proof.prediction.tolist(), proof.radius.tolist(), proof.certified.tolist(), margins, attempts,
        strict=True,
    )  # fmt: skip
    return Examined([Row(first + k, *values) for k, values in enumerate(columns)], attacked, seconds)


def _with_more(proof: Certificate, rows: Tensor, more: Certificate) -> Certificate:
    """The certificates, with the better of two for the images `rows`: their own, or that of `more`."""
    best, columns = best_of([proof[rows], more]), ("radius", "certified")
    return replace(proof, **{name: getattr(proof, name).index_copy(0, rows, getattr(best, name)) for name in columns})


def attempt(subject: Subject, attack: Attack, images: Tensor, labels: Tensor, eps: str) -> tuple[Tensor, list[Attempt]]:
    """Attack images; return what the attack made of them, (B, C, H, W), and its results."""
    found = subject.attack(attack, images, labels, parse_eps(eps))
    results = zip(found.broken.tolist(), subject.predictions(found.images), found.size.tolist(), strict=True)
    return found.images, [Attempt(*each) for each in results]
