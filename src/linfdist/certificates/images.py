"""Certificates of image files: one object per image, as `linfdist certify --json` writes them."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ..data import read_images
from ..eps import Eps, as_text
from ..models import Network
from .certificate import certify


@dataclass(frozen=True)
class CertifiedImage:
    """The class of an image file and the radius that is proved, on the 0–1 intensity scale.

    eps, certified: the radius that was asked for, as text, and whether the class is proved within it; None if no
    radius was asked for. name: the class in words, if known.
    """

    image: str
    prediction: int
    name: str | None
    radius: float
    certified: bool | None
    eps: str | None
    method: str
    domain: str | None = None  # see `Certificate`
    resized_to: int | None = None  # the side of the image that the network saw, if files are resized first

    def json(self, model_sha256: str) -> dict[str, Any]:
        """Give the object for a file, with the checksum of the network that it is about."""
        return {
            "image": self.image,
            "prediction": self.prediction,
            "class": self.name,
            "radius": self.radius,
            "eps": self.eps,
            "certified": self.certified,
            "method": self.method,
            "domain_sha256": self.domain,
            "model_sha256": model_sha256,
            **({} if self.resized_to is None else {"resized_to": self.resized_to}),
        }


def read_for(network: Network, paths: Sequence[str | os.PathLike[str]]) -> Tensor:
    """Read image files as what the network takes; ValueError names one of another size, or outside its domain."""
    images = network.from_bytes(read_images(paths, network.shape, network.resize))
    for path, image in zip(paths, images, strict=True):
        try:
            network.check_images(image[None])
        except ValueError as error:
            raise ValueError(f"{os.fspath(path)}: {error}") from None
    return images


def certify_files(
    network: Network,
    paths: Sequence[str | os.PathLike[str]],
    eps: Eps | None = None,
    method: str = "box",
    classes: Sequence[str] | None = None,
) -> list[CertifiedImage]:
    """Certify image files, which must have the network's size and be in its domain; classes: their names, if known.

    A network that was trained on resized images takes files of any size: they are resized alike, and what is certified
    are the resized pixels.
    """
    proof = certify(network, read_for(network, paths), eps, method=method)
    certified = [None] * len(paths) if proof.certified is None else proof.certified.tolist()
    found = zip(paths, proof.prediction.tolist(), proof.radius.tolist(), certified, strict=True)
    rest = None if eps is None else as_text(eps), method, proof.domain, network.resize
    return [
        CertifiedImage(os.fspath(path), best, classes[best] if classes else None, radius, sure, *rest)
        for path, best, radius, sure in found
    ]
