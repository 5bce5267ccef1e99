"""What an evaluation asks of a network, whatever its kind."""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import singledispatch
from pathlib import Path

import torch
from torch import Tensor

from ..attacks import Attack, Attacked, smallest
from ..certificates import Certificate, Certifier
from ..certificates.prover import AFTER_BOX, CONTAINED
from ..files import file_sha256
from ..models import PixelNet, as_network
from .settings import parse_methods


class Subject(ABC):
    """A network under evaluation. Images are bytes (B, C, H, W), labels int64 (B,), both on the CPU."""

    @abstractmethod
    def sha256(self, file: Path | None) -> str:
        """The sha256 by which results name the network; `file` is where it was loaded from, if it was."""

    @property
    def device(self) -> torch.device:
        """Where the network computes."""
        return torch.device("cpu")

    @property
    def domain(self) -> str | None:
        """The sha256 of the domain that all proofs and attacks keep to; None if that is all images of [0, 1]."""
        return None

    @abstractmethod
    def check(self, images: Tensor) -> None:
        """Raise ValueError or TypeError unless the network takes all these images."""

    def check_method(self, method: str) -> None:
        """Raise ValueError unless `prove` knows the method; a subject that has proofs of its own names them here."""
        parse_methods(method)

    def quick(self, method: str) -> str:
        """The part of a method that is quick, tried on every image; the method itself if all of it is."""
        return method

    @abstractmethod
    def prove(self, images: Tensor, labels: Tensor, eps: str, method: str, radii: bool) -> Certificate:
        """Certify the images at eps, by the best of several methods; find their radii too, if these are asked for."""

    @abstractmethod
    def attack(self, attack: Attack, images: Tensor, labels: Tensor, eps: Fraction) -> Attacked:
        """Attack the images within the closed eps-ball."""

    @abstractmethod
    def smallest(self, images: Tensor, labels: Tensor, start: Fraction, rounds: int) -> Attacked:
        """Search for the smallest perturbation that changes the class of each image."""

    @abstractmethod
    def predictions(self, pixels: Tensor) -> list[int]:
        """The classes of attacked images, as `attack` and `smallest` give them."""


class FloatSubject(Subject):
    """A network in floating point, in eval mode: any that `certify` accepts."""

    def __init__(self, network: PixelNet) -> None:
        self.network = network
        self.certifiers: dict[str, Certifier] = {}  # by method: all proofs are about the network as it was at the first

    def sha256(self, file: Path | None) -> str:
        """That of the file; without one, that of the configuration and the weights."""
        if file is not None:
            return file_sha256(file)
        config = self.network.config or [list(each) for each in _attributes(self.network)]  # it may have none
        digest = hashlib.sha256(json.dumps(config, sort_keys=True).encode())
        for name, tensor in sorted(self.network.state_dict().items()):
            values = tensor.detach().cpu().contiguous()
            digest.update(f"{name} {values.dtype} {tuple(values.shape)}".encode())
            digest.update(values.view(-1).view(torch.uint8).numpy().data if values.numel() else b"")
        return digest.hexdigest()

    @property
    def device(self) -> torch.device:
        return self.network.any_tensor.device

    def check(self, images: Tensor) -> None:
        self.network.check_images(self.network.from_bytes(images[:1]))

    def prove(self, images: Tensor, labels: Tensor, eps: str, method: str, radii: bool) -> Certificate:
        x = self.network.from_bytes(images)
        y = labels.to(x.device)
        return best_of([self.certifier(each)(x, eps, y, radii) for each in strongest(parse_methods(method))])

    def quick(self, method: str) -> str:
        return "box" if any(each in AFTER_BOX for each in parse_methods(method)) else method

    def certifier(self, method: str) -> Certifier:
        """The one certifier of a method."""
        if method not in self.certifiers:
            self.certifiers[method] = Certifier(self.network, method)
        return self.certifiers[method]

    def attack(self, attack: Attack, images: Tensor, labels: Tensor, eps: Fraction) -> Attacked:
        x = self.network.from_bytes(images)
        return attack(self.network, x, labels.to(x.device), eps)

    def smallest(self, images: Tensor, labels: Tensor, start: Fraction, rounds: int) -> Attacked:
        x = self.network.from_bytes(images)
        return smallest(self.network, x, labels.to(x.device), start, rounds=rounds)

    @torch.no_grad()
    def predictions(self, pixels: Tensor) -> list[int]:
        return self.network(pixels).argmax(1).tolist()


def strongest(methods: Sequence[str]) -> list[str]:
    """Those of the methods that are not contained in another: what "crown" tries begins with all that "box" does."""
    return [name for name in dict.fromkeys(methods) if not any(name in CONTAINED.get(other, ()) for other in methods)]


def best_of(proofs: Sequence[Certificate]) -> Certificate:
    """What several certificates of the same images prove together: each of them holds on its own, image by image.

    One that speaks of another prediction than the first does not count there. The margin's radii are the first's.
    """
    best = proofs[0]
    for proof in proofs[1:]:
        same = proof.prediction == best.prediction
        radius = torch.maximum(best.radius, proof.radius.where(same, 0.0))
        assert best.certified is not None  # as eps was given
        assert proof.certified is not None
        best = replace(best, radius=radius, certified=best.certified | (proof.certified & same))
    return best


def _attributes(network: PixelNet) -> Iterator[tuple[str, str]]:
    """Everything that is kept on the modules of a network besides tensors and modules, as text."""
    for name, module in network.named_modules():
        yield name, f"{type(module).__module__}.{type(module).__qualname__}"
        for key, value in sorted(vars(module).items()):
            if not key.startswith("_") and key != "training":
                yield f"{name}.{key}", repr(value)


@singledispatch
def subject_of(network: object, shape: Sequence[int]) -> Subject:
    """What answers for a network in an evaluation on images of this shape (C, H, W).

    Kinds of networks other than those in floating point register a subject of their own. TypeError, with the reason,
    for what cannot be certified.
    """
    return FloatSubject(as_network(network, shape))


@subject_of.register
def _(network: Subject, shape: object) -> Subject:
    return network
