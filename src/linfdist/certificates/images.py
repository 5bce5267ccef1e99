"""Certificates of image files: one object per image, as `linfdist certify --json` writes them."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..data import DataError, read_images
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
        """Return the JSON object for a file, with the checksum of the network that it is about."""
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


Refused = dict[str, str]  # files that are not certified, each with a sentence that names it and says why


def read_for(
    network: Network, paths: Sequence[str | os.PathLike[str]], resize: bool = False
) -> tuple[list[str], Tensor | None, Refused]:
    """Read image files for the network; return the accepted files, their pixels, and the refused files.

    resize: cut and resize files of other sizes. Networks that were trained on resized images do so themselves.
    """
    side = network.resize
    if resize and side is None:
        side, width = network.shape[1:]
        if side != width:
            raise ValueError(
                f"resize: is for networks that take square images, and this one takes images of {side} × {width}"
            )
    taken: list[str] = []
    images: list[Tensor] = []
    refused: Refused = {}
    for path in (os.fspath(each) for each in paths):
        try:
            image = network.from_bytes(read_images([path], network.shape, side))
            network.check_images(image)
        except (DataError, ValueError) as error:
            refused[path] = str(error) if isinstance(error, DataError) else f"{path}: {error}"
        else:
            taken.append(path)
            images.append(image)
    return taken, torch.cat(images) if images else None, refused


def certify_files(
    network: Network,
    paths: Sequence[str | os.PathLike[str]],
    eps: Eps | None = None,
    method: str = "box",
    classes: Sequence[str] | None = None,
    resize: bool = False,
) -> tuple[list[CertifiedImage], Refused]:
    """Certify image files; return their certificates, and those that are refused. classes: their names, if known.

    Files must have the network's size and be in its domain. A network that was trained on resized images takes files of
    any size, and so does any with `resize`: they are resized, and what is certified are the resized pixels.
    """
    taken, images, refused = read_for(network, paths, resize)
    if images is None:
        return [], refused
    proof = certify(network, images, eps, method=method)
    certified = [None] * len(taken) if proof.certified is None else proof.certified.tolist()
    found = zip(taken, proof.prediction.tolist(), proof.radius.tolist(), certified, strict=True)
    side = network.shape[1] if resize else network.resize
    rest = None if eps is None else as_text(eps), method, proof.domain, side
    return [
        CertifiedImage(path, best, classes[best] if classes else None, radius, sure, *rest)
        for path, best, radius, sure in found
    ], refused
