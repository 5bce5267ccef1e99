"""Exact certificates of image files: computed for many, and found again in a file of certificates."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..certificates.images import read_for
from ..files import MOST_BYTES
from .certificate import ExactCertificate, Undecided, certificates
from .network import FrozenNet
from .twin import unique


def certificates_of_files(
    network: FrozenNet, paths: Sequence[str | os.PathLike[str]], method: str = "box"
) -> list[ExactCertificate]:
    """Certify image files; ValueError names one that has no certain class, or is outside the network's domain."""
    images = read_for(network, paths)
    try:
        return certificates(network, images, method)
    except Undecided as error:
        raise ValueError(f"{os.fspath(paths[error.image])}: {error}") from None


def read_certificate(path: Path, image_sha256: str) -> dict[str, Any]:
    """Find the certificate of an image in a file that holds one, or several, one per line."""
    if path.exists() and not path.is_file():
        raise ValueError(f"{path} is no regular file: give the file that `linfdist certify --exact` wrote")
    with open(path, "rb") as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise ValueError(f"{path} has more than {MOST_BYTES:,} bytes: give the certificate of this image alone")
    try:
        text = content.decode().strip()
        certificates = [
            json.loads(part, object_pairs_hook=unique) for part in (text.splitlines() if "\n{" in text else [text])
        ]
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON that can be trusted ({error})") from None
    if not all(isinstance(each, dict) for each in certificates):
        raise ValueError(f"{path} holds no certificate: a JSON object is expected, or one per line")
    found = [each for each in certificates if each.get("image_sha256") == image_sha256]
    if len(found) != 1:
        count = "no certificate" if not found else f"{len(found)} certificates"
        raise ValueError(f"{path} holds {count} of this image, whose sha256 is {image_sha256}: one is expected")
    return found[0]
