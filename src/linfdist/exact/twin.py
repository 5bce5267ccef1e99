"""Re-checks a certificate from the files alone: the standard library and numpy, nothing else of linfdist.

A point is a box of size zero, so one function of five lines is the whole network, and the whole proof; a head, if there
is one, has a few lines of its own.
"""

import hashlib
import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
TYPES = {"U8": "u1", "I16": "<i2", "I32": "<i4", "F64": "<f8"}
KINDS = {"weight": "I16 I32", "bias": "I32"}  # all else is U8, but for the head
HEAD = ["head.w1", "head.b1", "head.w2", "head.b2"]
FORMATS: dict[str, list[str]] = {"linfdist-exact-1": [], "linfdist-exact-head-1": HEAD}  # and the tensors they add


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
    head = [tensors[name] for name in FORMATS[header["format"]]]
    if head and method != "box":
        raise ValueError(f"method: the certificate says {method!r}, a network with a head has 'box' alone")

    def outputs(levels: int) -> tuple[Ints, Ints]:
        return bounds(header, tensors, np.maximum(pixels - levels, lower), np.minimum(pixels + levels, upper))

    def holds(levels: int) -> bool:
        low, high = outputs(levels)
        return head_holds(head, low, high, best) if head else bool(np.delete(low, best).min() > high[best])

    exact, _ = outputs(0)
    best = int((head_logits(head, exact) if head else -exact).argmax())
    margin = None if head else int(np.delete(exact, best).min() - exact[best])
    levels = min(255, max(0, (margin or 0) - 1) // 2 ** (k + 1))
    radius = Fraction(margin or 0, 2 ** (k + 1))
    if method == "box":
        claim = certificate.get("levels")
        if type(claim) is not int or not levels <= claim <= 255:
            raise ValueError(f"levels: the certificate says {claim!r}, it is {levels} to 255")
        if (head or claim > levels) and not holds(claim):
            raise ValueError(f"levels: the certificate says {claim}, which the network's intervals do not prove")
        if claim < 255 and not head and holds(claim + 1):
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


def bounds(header: dict[str, Any], tensors: dict[str, NDArray[Any]], low: Ints, high: Ints) -> tuple[Ints, Ints]:
    """The least and the largest outputs of the last layer over all images low <= x <= high (C, H, W), in grid units:
    the features of the head, or if there is none, the logits, negated.
    """
    low, high = (crop(bound, header["crop"]).ravel() * 2 ** header["k"] for bound in (low, high))
    for number in range(len(header["layers"])):
        w, kept, b = weights(tensors, number, len(low))
        if header["layers"][number] != {"outputs": len(b), "inputs": len(low)}:
            raise ValueError(f"layer {number} of the network is not of the size its header says")
        near = np.maximum(np.maximum(low - w, w - high), 0)
        far = np.maximum(high - w, w - low)
        low, high = np.where(kept, near, -1).max(1) + b, np.where(kept, far, -1).max(1) + b
    return low, high


def head_logits(head: list[Floats], n: Ints) -> Floats:
    """The logits (classes,) of features n (F,), up to rounding. Weights up to 1e100 cannot overflow; NaN is refused."""
    w1, b1, w2, b2 = head
    shapes = [(b1.size, len(n)), (b1.size,), (b2.size, b1.size), (b2.size,)]
    if [part.shape for part in head] != shapes or b2.size < 2 or not all(abs(part).max() <= 1e100 for part in head):
        raise ValueError("the head of the network does not fit together, or is not finite, or too large")
    return w2 @ np.tanh(w1 @ n + b1) + b2


def head_holds(head: list[Floats], low: Ints, high: Ints, best: int) -> bool:
    """Whether class `best` has the largest logit for all features low <= n <= high, however float64 sums are executed.

    A sum of m products and a bias loses at most (m + 2) 2^-53 of the sum of magnitudes where it is executed, twice that
    here, and a tanh 4 · 2^-52 each time; the slacks are 8 (m + 16) 2^-53 and 16 · 2^-52. 1e-200 is for what underflows.
    """
    w1, b1, w2, b2 = head
    slack = (len(low) + 16) * (2.0**-50 * (abs(w1) @ np.maximum(abs(low), abs(high)) + abs(b1)) + 1e-200)
    middle, reach = w1 @ ((low + high) / 2) + b1, abs(w1) @ ((high - low) / 2) + slack
    least, most = np.tanh(middle - reach) - 2.0**-48, np.tanh(middle + reach) + 2.0**-48
    slack = (len(b1) + 16) * (2.0**-50 * (abs(w2).sum(1) + abs(b2)) + 1e-200)
    w, b = w2[best] - w2, b2[best] - b2 - slack[best] - slack
    differences = w @ ((least + most) / 2) - abs(w) @ ((most - least) / 2) + b
    return bool((np.delete(differences, best) > 0).all())


def weights(tensors: dict[str, NDArray[Any]], number: int, inputs: int) -> tuple[Ints, NDArray[np.bool_], Ints]:
    """Layer `number`: its weights (O, I), which of them were kept, and its biases (O,)."""
    bits = np.unpackbits(tensors[f"{number}.mask"].astype(np.uint8), axis=1)
    kept = bits[:, :inputs].astype(bool)
    values, b = tensors[f"{number}.weight"], tensors[f"{number}.bias"]
    if (
        kept.shape != (len(b), inputs)
        or not kept.any(1).all()
        or values.shape != (kept.sum(),)
        or bits[:, inputs:].any()
    ):
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


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object; ValueError if it has a key twice, of which a reader would see only one."""
    if len(pairs) != len(dict(pairs)):
        raise ValueError("a key appears twice")
    return dict(pairs)


def read(path: Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]], str]:
    """Header, tensors and sha256 of a safetensors file: a length, that much JSON, then the tensors' bytes."""
    data = Path(path).read_bytes()
    try:
        start = 8 + int.from_bytes(data[:8], "little")
        entries = json.loads(data[8:start], object_pairs_hook=unique)
        header = json.loads(entries.pop("__metadata__")["linfdist"], object_pairs_hook=unique)
        stated = header.pop("sha256")
        digest = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
        tensors: dict[str, NDArray[Any]] = {}
        for name, entry in sorted(entries.items()):
            begin, end = (start + offset for offset in entry["data_offsets"])
            digest.update(json.dumps([name, entry["dtype"], entry["shape"]]).encode() + data[begin:end])
            values = np.frombuffer(data[begin:end], TYPES[entry["dtype"]]).reshape(entry["shape"])
            kind = "F64" if name in HEAD else KINDS.get(name.split(".")[-1], "U8")
            if entry["dtype"] not in kind.split() or list(values.shape) != entry["shape"]:
                raise ValueError(f"{name} is {entry['dtype']} {entry['shape']}")
            tensors[name] = values.astype(np.float64 if name in HEAD else np.int64)
        spans = sorted(entry["data_offsets"] for entry in entries.values())
        if [0, *(end for _, end in spans)] != [*(begin for begin, _ in spans), len(data) - start]:
            raise ValueError("tensors that do not lie one after the other")
        names = {f"{number}.{part}" for number in range(len(header["layers"])) for part in ("mask", "weight", "bias")}
        if tensors.keys() != names | {"lower", "upper", *FORMATS[header["format"]]}:
            raise ValueError("tensors that do not belong to its format")
        k, side, shape = header["k"], header["crop"], header["shape"]
        if len(shape) != 3 or [list(tensors[name].shape) for name in ("lower", "upper")] != [shape, shape]:
            raise ValueError("a domain that does not fit its images")
        if type(k) is not int or k not in range(8) or type(side) not in (int, type(None)):
            raise ValueError(f"k = {k!r}, crop = {side!r}")
        if side is not None and side not in range(1, min(shape[1:]) + 1):
            raise ValueError(f"crop = {side} of images {shape}")
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{path} is no exact network, or is damaged ({type(error).__name__}: {error})") from None
    if digest.hexdigest() != stated:
        raise ValueError(f"{path} is damaged or was changed: its content does not have the sha256 in its header")
    return header, tensors, digest.hexdigest()
