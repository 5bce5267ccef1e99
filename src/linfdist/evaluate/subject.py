"""What an evaluation asks of a network, whatever its kind."""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from fractions import Fraction
from functools import singledispatch

import torch
from torch import Tensor

from ..attacks import Attack, Attacked, smallest
from ..certificates import Certificate, certify
from ..models import PixelNet, as_network


class Subject(ABC):
    """A network under evaluation. Images are bytes (B, C, H, W), labels int64 (B,), both on the CPU."""

    @abstractmethod
    def sha256(self) -> str:
        """The sha256 of all that determines what the network computes."""

    @abstractmethod
    def check(self, images: Tensor) -> None:
        """Raise ValueError or TypeError unless the network takes images of this shape."""

    @abstractmethod
    def prove(self, images: Tensor, labels: Tensor, eps: str, method: str) -> Certificate:
        """Certify the images at eps, and find their radii."""

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

    def sha256(self) -> str:
        config = self.network.config or {"layers": repr(self.network)}  # it may have none
        digest = hashlib.sha256(json.dumps(config, sort_keys=True).encode())
        for name, tensor in sorted(self.network.state_dict().items()):
            values = tensor.detach().cpu().contiguous()
            digest.update(f"{name} {values.dtype} {tuple(values.shape)}".encode())
            digest.update(values.view(-1).view(torch.uint8).numpy().data if values.numel() else b"")
        return digest.hexdigest()

    def check(self, images: Tensor) -> None:
        self.network.check_images(self.network.from_bytes(images))

    def prove(self, images: Tensor, labels: Tensor, eps: str, method: str) -> Certificate:
        x = self.network.from_bytes(images)
        return certify(self.network, x, eps, labels.to(x.device), method=method)

    def attack(self, attack: Attack, images: Tensor, labels: Tensor, eps: Fraction) -> Attacked:
        x = self.network.from_bytes(images)
        return attack(self.network, x, labels.to(x.device), eps)

    def smallest(self, images: Tensor, labels: Tensor, start: Fraction, rounds: int) -> Attacked:
        x = self.network.from_bytes(images)
        return smallest(self.network, x, labels.to(x.device), start, rounds=rounds)

    @torch.no_grad()
    def predictions(self, pixels: Tensor) -> list[int]:
        return self.network(pixels).argmax(1).tolist()


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
