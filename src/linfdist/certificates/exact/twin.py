"""Re-checks a certificate from the files alone: the standard library and numpy, nothing else of linfdist.

A point is a box of size zero, so one function of five lines is the whole network, and the whole proof.
"""

import hashlib
import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
TYPES = {"U8": "u1", "I16": "<i2", "I32": "<i4"}


def verify(certificate: dict[str, Any], image: NDArray[np.uint8], model: Path) -> None:
    """Compute what the certificate of this image (C, H, W) by this network must say; ValueError where it differs."""
    method = certificate.get("method")
    if method not in ("margin", "box"):
        raise ValueError(f"the certificate's method is {method!r}, expected 'margin' or 'box'")
    header, tensors, sha256 = read(model)
    k, lower, upper = header["k"], tensors["lower"], tensors["upper"]
    if image.dtype != np.uint8 or image.shape != lower.shape:
        raise ValueError(f"the image is {image.dtype} {image.shape}, the network takes uint8 {lower.shape}")
    if (image < lower).any() or (image > upper).any():
        raise ValueError("the image is outside the network's domain")
    pixels = image.astype(np.int64)

    def logits(levels: int) -> tuple[Ints, Ints]:
        return bounds(header, tensors, np.maximum(pixels - levels, lower), np.minimum(pixels + levels, upper))

    def holds(levels: int) -> bool:
        least, most = logits(levels)
        return bool(least[best] > np.delete(most, best).max())

    exact, _ = logits(0)
    best = int(exact.argmax())
    margin = int(exact[best] - np.delete(exact, best).max())
    levels = min(255, max(0, margin - 1) // 2 ** (k + 1))
    radius = Fraction(margin, 2 ** (k + 1))
    if method == "box":
        claim = certificate.get("levels")
        if type(claim) is not int or not levels <= claim <= 255:
            raise ValueError(f"levels: the certificate says {claim!r}, the margin alone proves {levels} of 255")
        if claim > levels and not holds(claim):
            raise ValueError(f"levels: the certificate says {claim}, which the network's intervals do not prove")
        if claim < 255 and holds(claim + 1):
            raise ValueError(f"levels: the certificate says {claim}, the network's intervals prove more")
        levels, radius = claim, Fraction(claim)
    whole = bool((lower == 0).all() and (upper == 255).all())
    expected = {
        "format": "linfdist-certificate-1",
        "image_sha256": sha256_of(image),
        "image_shape": list(image.shape),
        "model_sha256": sha256,
        "class": best,
        "grid": f"1/{255 * 2**k} pixel",
        "margin": margin,
        "method": method,
        "radius": str(radius),
        "ball": "open" if method == "margin" else "closed",
        "levels": levels,
        "domain_sha256": None if whole else sha256_of(np.concatenate([lower, upper]).astype(np.uint8)),
    }
    for key in [*expected, *certificate]:
        if key not in expected:
            raise ValueError(f"the certificate has an unknown entry {key!r}")
        if key not in certificate:
            raise ValueError(f"the certificate has no entry {key!r}")
        if json.dumps(certificate[key]) != json.dumps(expected[key]):
            raise ValueError(f"{key}: the certificate says {certificate[key]!r}, it is {expected[key]!r}")


def bounds(header: dict[str, Any], tensors: dict[str, Ints], low: Ints, high: Ints) -> tuple[Ints, Ints]:
    """The least and the largest logits (classes,) over all images low <= x <= high (C, H, W), in grid units."""
    low, high = (crop(bound, header["crop"]).ravel() * 2 ** header["k"] for bound in (low, high))
    for number in range(len(header["layers"])):
        w, kept, b = weights(tensors, number, len(low))
        near = np.maximum(np.maximum(low - w, w - high), 0)
        far = np.maximum(high - w, w - low)
        low, high = np.where(kept, near, -1).max(1) + b, np.where(kept, far, -1).max(1) + b
    return -high, -low


def weights(tensors: dict[str, Ints], number: int, inputs: int) -> tuple[Ints, NDArray[np.bool_], Ints]:
    """Layer `number`: its weights (O, I), which of them were kept, and its biases (O,)."""
    bits = np.unpackbits(tensors[f"{number}.mask"].astype(np.uint8), axis=1)
    kept = bits[:, :inputs].astype(bool)
    values, b = tensors[f"{number}.weight"], tensors[f"{number}.bias"]
    if kept.shape != (len(b), inputs) or not kept.any(1).all() or values.shape != (kept.sum(),):
        raise ValueError(f"layer {number} of the network does not fit together")
    w = np.zeros(kept.shape, np.int64)
    w[kept] = values
    return w, kept, b


def crop(image: Ints, side: int | None) -> Ints:
    """The middle of an image (C, H, W)."""
    top, left = (0, 0) if side is None else ((length - side) // 2 for length in image.shape[1:])
    return image[:, top : image.shape[1] if side is None else top + side, left : None if side is None else left + side]


def sha256_of(image: NDArray[np.uint8]) -> str:
    """Its shape, as in "1,28,28:", then its pixels."""
    return hashlib.sha256((",".join(map(str, image.shape)) + ":").encode() + image.tobytes()).hexdigest()


def read(path: Path) -> tuple[dict[str, Any], dict[str, Ints], str]:
    """Header, tensors and sha256 of a safetensors file: a length, that much JSON, then the tensors' bytes."""
    data = Path(path).read_bytes()
    try:
        start = 8 + int.from_bytes(data[:8], "little")
        entries = json.loads(data[8:start])
        header = json.loads(entries.pop("__metadata__")["linfdist"])
        stated = header.pop("sha256")
        digest = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
        tensors, used = {}, 0
        for name, entry in sorted(entries.items()):
            begin, end = (start + offset for offset in entry["data_offsets"])
            digest.update(json.dumps([name, entry["dtype"], entry["shape"]]).encode() + data[begin:end])
            tensors[name] = (
                np.frombuffer(data[begin:end], TYPES[entry["dtype"]]).reshape(entry["shape"]).astype(np.int64)
            )
            used += end - begin
        names = {f"{number}.{part}" for number in range(len(header["layers"])) for part in ("mask", "weight", "bias")}
        sides = [None, *range(1, min(tensors["lower"].shape[1:]) + 1)]
        if header["format"] != "linfdist-exact-1" or tensors.keys() != names | {"lower", "upper"}:
            raise ValueError("unknown format, or tensors that do not belong to it")
        if header["k"] not in range(8) or header["crop"] not in sides or tensors["lower"].ndim != 3:
            raise ValueError("impossible sizes")
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{path} is no exact network, or is damaged ({type(error).__name__}: {error})") from None
    if digest.hexdigest() != stated or start + used != len(data):
        raise ValueError(f"{path} is damaged or was changed: its content does not have the sha256 in its header")
    return header, tensors, digest.hexdigest()
