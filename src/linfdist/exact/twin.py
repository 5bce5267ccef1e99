"""Re-checks a certificate from the files alone: the standard library and numpy, nothing else of linfdist.

A point is a box of size zero, so one function of five lines, `interval`, is the whole network, and the whole proof; a
head, if there is one, has a few lines of its own. The rest checks that the file is what docs/format.md says. A file is
refused here exactly if `linfdist.exact.load` refuses it.

Memory: at most three times the size of the file, and 128 bytes times 2^18 (32 MiB) or times the size of the
widest layer, whichever is more; the image and the head count as layers.
"""

import hashlib
import json
import math
import os
import stat
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Tensors = dict[str, NDArray[Any]]
TYPES: dict[str, np.dtype[Any]] = {
    "U8": np.dtype("u1"),
    "I16": np.dtype("<i2"),
    "I32": np.dtype("<i4"),
    "F64": np.dtype("<f8"),
}
HEAD = ["head.w1", "head.b1", "head.w2", "head.b2"]
FORMATS = ["linfdist-exact-1", "linfdist-exact-head-1", "linfdist-exact-2"]
KINDS = {  # of stages, in the order that they come in, each with its keys
    "crop": ["side"],
    "clip": ["low", "high"],
    "pool": ["sizes", "steps"],
    "dist": ["outputs", "inputs"],
    "sum": ["count"],
    "head": [],
}
MOST_BYTES, MOST_TEXT, MOST_HEADER = 2**31, 2**20, 2**18  # of the file, of its JSON, and of the JSON text within it
MOST_LAYERS, MOST_WIDTH, MOST_NESTING = 1000, 2**20, 16  # layers; pixels, or neurons of one; levels of `facts`
AT_ONCE = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)  # without waiting for a pipe's writer
BLOCK = 2**18  # weights of a layer that are looked at together


def verify(certificate: dict[str, Any], image: NDArray[np.uint8], model: Path) -> None:
    """Compute the certificate of this image (C, H, W) by this network; raise ValueError where the given one differs."""
    if type(certificate) is not dict:
        raise ValueError(f"the certificate is {short(certificate)}, expected a JSON object")
    method = certificate.get("method")
    if method not in ("margin", "box"):
        raise ValueError(f"the certificate's method is {short(method)}, expected 'margin' or 'box'")
    header, tensors, sha256 = read(model)
    steps, lower, upper = steps_of(header), tensors["lower"], tensors["upper"]
    if image.dtype != np.uint8 or image.shape != lower.shape:
        raise ValueError(f"the image is {image.dtype} {image.shape}, the network takes uint8 {lower.shape}")
    if (image < lower).any() or (image > upper).any():
        raise ValueError("the image is outside the network's domain")
    pixels = image.astype(np.int64)
    head = [tensors[name] for name in HEAD if name in tensors]
    if head and method != "box":
        raise ValueError(f"method: the certificate says {short(method)}, a network with a head has 'box' alone")

    def outputs(levels: int) -> tuple[Ints, Ints]:
        return bounds(header, tensors, np.maximum(pixels - levels, lower), np.minimum(pixels + levels, upper))

    def holds(levels: int) -> bool:
        low, high = outputs(levels)
        return head_holds(head, low, high, best) if head else bool(np.delete(low, best).min() > high[best])

    exact, _ = outputs(0)
    best = int((head_logits(head, exact) if head else -exact).argmax())
    margin = None if head else int(np.delete(exact, best).min() - exact[best])
    levels = min(255, max(0, (margin or 0) - 1) // (2 * steps))
    radius = Fraction(margin or 0, 2 * steps)
    if method == "box":
        claim = certificate.get("levels")
        if type(claim) is not int or not levels <= claim <= 255:
            raise ValueError(f"levels: the certificate says {short(claim)}, it is {levels} to 255")
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
        "grid": f"1/{255 * steps} pixel",
        "margin": margin,
        "method": method,
        "radius": str(radius),
        "ball": "open" if method == "margin" else "closed",
        "levels": levels,
        "domain_sha256": None if whole else sha256_of(np.concatenate([lower, upper])),
    }
    for key in [*expected, *certificate]:
        if key not in expected:
            raise ValueError(f"the certificate has an unknown entry {short(key)}")
        if key not in certificate:
            raise ValueError(f"the certificate has no entry {key!r}")
        if certificate[key] != expected[key] or types(certificate[key]) != types(expected[key]):
            raise ValueError(f"{key}: the certificate says {short(certificate[key])}, it is {expected[key]!r}")


def bounds(header: dict[str, Any], tensors: Tensors, low: Ints, high: Ints) -> tuple[Ints, Ints]:
    """Return the least and the largest outputs of the last stage over all images low <= x <= high, in grid units.

    Images are (C, H, W). Outputs are the features of the head, or if there is none, the logits, negated.

    Raises ValueError where a layer is not allowed. A layer that is allowed for the whole domain is for every box in it.
    """
    low, high, number = low.astype(np.int64) * 2 ** header["k"], high.astype(np.int64) * 2 ** header["k"], 0
    for stage in stages_of(header):
        if stage["kind"] == "dist":
            low, high = layer(tensors, number, low.ravel(), high.ravel())
            number += 1
        elif stage["kind"] != "head":
            low, high = monotone(stage, low), monotone(stage, high)
            if max(abs(low).max(), abs(high).max()) > 2**31 - 1:
                raise ValueError(f"values of its stage {stage['kind']} do not fit 32 bits")
    return low, high


def monotone(stage: dict[str, Any], x: Ints) -> Ints:
    """Apply a monotone stage, which maps the ends of intervals to ends."""
    if stage["kind"] == "crop":
        top, left = ((length - stage["side"]) // 2 for length in x.shape[1:])
        return x[:, top : top + stage["side"], left : left + stage["side"]]
    if stage["kind"] == "clip":
        return np.clip(x, stage["low"], stage["high"])
    if stage["kind"] == "pool":
        return np.concatenate([blocks(x, s).ravel() * (stage["steps"] // s**2) for s in stage["sizes"]])
    return x.reshape(-1, stage["count"]).sum(1)


def blocks(x: Ints, s: int) -> Ints:
    """Sum the s × s blocks that tile an image (C, H, W) from its upper left: (C, H // s, W // s)."""
    channels, height, width = x.shape[0], x.shape[1] // s, x.shape[2] // s
    return x[:, : height * s, : width * s].reshape(channels, height, s, width, s).sum((2, 4))


def stages_of(header: dict[str, Any]) -> list[dict[str, Any]]:
    """List the stages that an image goes through, whatever the format calls them."""
    if "stages" in header:
        stages: list[dict[str, Any]] = header["stages"]
        return stages
    stages = [] if header["crop"] is None else [{"kind": "crop", "side": header["crop"]}]
    stages += [{"kind": "dist", **sizes} for sizes in header["layers"]]
    return stages + ([{"kind": "head"}] if header["format"] == FORMATS[1] else [])


def steps_of(header: dict[str, Any]) -> int:
    """Bound the change of a value of the last stage before a head if no pixel changes by more than one level."""
    factors = [stage.get("steps", 1) * stage.get("count", 1) for stage in stages_of(header)]
    return int(2 ** header["k"] * math.prod(factors))


def interval(w: Ints, kept: NDArray[np.bool_], b: Ints, low: Ints, high: Ints) -> tuple[Ints, Ints]:
    """Bound max_i |x[i] - w[o, i]| + b[o], i over kept entries, for low <= x <= high: least and largest, (O,) each."""
    near = np.maximum(np.maximum(low - w, w - high), 0)
    far = np.maximum(high - w, w - low)
    return np.where(kept, near, -1).max(1) + b, np.where(kept, far, -1).max(1) + b


def layer(tensors: Tensors, number: int, low: Ints, high: Ints) -> tuple[Ints, Ints]:
    """Bound the outputs of a layer by intervals, a few neurons at a time.

    Raises ValueError if a neuron has no entry, if the layer's type might overflow, or if an entry outside the mask
    could win with the middle of its input's range as its weight, which is what readers without a mask put there.
    """
    mask, values, bias = (tensors[f"{number}.{part}"] for part in ("mask", "weight", "bias"))
    limit, largest = 2 ** (8 * values.itemsize - 1) - 1, int(max(abs(low).max(), abs(high).max(), (high - low).max()))
    step, used, found = max(1, BLOCK // len(low)), 0, []
    if (mask[:, -1] & (2 ** (-len(low) % 8) - 1)).any():
        raise ValueError(f"the mask of layer {number} has bits beyond the layer's {len(low)} inputs")
    for top in range(0, len(bias), step):
        kept = np.unpackbits(mask[top : top + step], axis=1, count=len(low)).view(np.bool_)  # (R, I)
        own = values[used : used + int(kept.sum())]
        used += int(kept.sum())
        if not kept.any(1).all() or len(own) < kept.sum():
            raise ValueError(f"layer {number} has a neuron without entries, or fewer weights than entries")
        w, b = np.zeros(kept.shape, np.int64), bias[top : top + step].astype(np.int64)
        w[kept] = own
        least, most = interval(w, kept, b, low, high)
        largest = max(largest, int(abs(w).max()), int((most - b + abs(b)).max()))
        if largest > limit:
            raise ValueError(f"values of layer {number} reach {largest}, its type holds no more than {limit}")
        if (np.where(kept, 0, (high - low + 1) // 2).max(1) > least - b).any():
            raise ValueError(f"an entry that layer {number} leaves out could win")
        found.append((least, most))
    if used != len(values):
        raise ValueError(f"layer {number} has {len(values)} weights for {used} entries")
    return np.concatenate([least for least, _ in found]), np.concatenate([most for _, most in found])


def head_logits(head: list[Floats], n: Ints) -> Floats:
    """Compute the logits (classes,) of features n (F,), up to rounding."""
    w1, b1, w2, b2 = head
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


def sha256_of(image: NDArray[np.uint8]) -> str:
    """Hash an image: its shape, as in "1,28,28:", then its pixels."""
    return hashlib.sha256((",".join(map(str, image.shape)) + ":").encode() + image.tobytes()).hexdigest()


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make a JSON object; raise ValueError if it has a key twice, of which a reader would see only one."""
    if len(pairs) != len(dict(pairs)):
        raise ValueError("a key appears twice")
    return dict(pairs)


def short(value: Any) -> str:
    """Show the value in an error message, cut where it is long."""
    try:
        text = repr(value)
    except RecursionError:
        text = "a value with too many objects and lists inside each other"
    return text if len(text) <= 80 else text[:77] + "..."


def types(value: Any) -> list[type]:
    """Return the types of a value and, if it is a list, of its items: to Python, 1, 1.0 and True are equal."""
    return [type(value), *map(type, value if type(value) is list else [])]


def integer(value: Any, least: int, most: int, what: str) -> int:
    """Return the value if it is a whole number from `least` to `most`; ValueError otherwise."""
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{what} is {short(value)}, expected a whole number from {least} to {most}")
    return value


def fields(value: Any, names: list[str], what: str) -> list[Any]:
    """Return the values of a JSON object; raise ValueError unless it has exactly these keys."""
    if type(value) is not dict or value.keys() != set(names):
        raise ValueError(f"{what} is {short(value)}, expected an object with the keys {', '.join(names)}")
    return [value[name] for name in names]


def nesting(value: Any) -> int:
    """Count how deeply objects and lists are nested."""
    inside = value.values() if type(value) is dict else value
    return 1 + max(map(nesting, inside), default=0) if type(value) in (dict, list) else 0


def parsed(text: Any, most: int, separators: tuple[str, str]) -> dict[str, Any]:
    """Parse a JSON object in the one form that is allowed: that of json.dumps, its keys in any order."""
    if type(text) is not str or len(text) > most:
        raise ValueError(f"its JSON header is not a text of at most {most} characters")
    value = json.loads(text, object_pairs_hook=unique)
    if type(value) is not dict or json.dumps(value, separators=separators, allow_nan=False) != text:
        raise ValueError("its JSON header is not an object as json.dumps writes it")
    json.dumps(value, ensure_ascii=False).encode()  # ValueError for half of a surrogate pair
    return value


def stages(listed: list[Any]) -> tuple[list[Any], list[Any], list[Any]]:
    """Split into the stages before the layers, the layers, and the rest; ValueError for other kinds, keys or orders."""
    for stage in listed:
        kind = stage.get("kind") if type(stage) is dict else None
        if type(kind) is not str or kind not in KINDS:
            raise ValueError(f"a stage is {short(stage)}, expected an object of one of the kinds {', '.join(KINDS)}")
        fields(stage, ["kind", *KINDS[kind]], "a stage")
    places = [list(KINDS).index(stage["kind"]) for stage in listed]
    dist = list(KINDS).index("dist")
    once = [place for place in places if place != dist]
    if (
        places != sorted(places)
        or dist not in places
        or len(set(once)) < len(once)
        or places[-2:] == [dist + 1, dist + 2]
    ):
        raise ValueError("its stages are not crop, clip, pool, each once at most, dist, and sum or head, in this order")
    first, last = places.index(dist), len(places) - places[::-1].index(dist)
    return listed[:first], listed[first:last], listed[last:]


def check_before(before: list[dict[str, Any]], k: int, shape: list[int]) -> int:
    """Return the number of inputs of the first layer; ValueError for numbers that are not allowed."""
    channels, height, width = shape
    for stage in before:
        if stage["kind"] == "crop":
            height = width = integer(stage["side"], 1, min(height, width), "the side of its crop")
        elif stage["kind"] == "clip":
            integer(stage["low"], 0, integer(stage["high"], 0, 255 * 2**k, "the end `high` of its clip"), "`low`")
        else:
            sizes, steps = stage["sizes"], integer(stage["steps"], 1, (2**31 - 1) // (255 * 2**k), "steps of its pool")
            if type(sizes) is not list or not 1 <= len(sizes) <= min(height, width):
                raise ValueError(f"the sizes of its blocks are {short(sizes)}, expected a list of different ones")
            for size in sizes:
                integer(
                    steps % integer(size, 1, min(height, width), "a size of its blocks") ** 2, 0, 0, "steps mod size²"
                )
            if len(set(sizes)) < len(sizes):
                raise ValueError(f"the sizes of its blocks are {short(sizes)}, expected different ones")
            return integer(sum(channels * (height // s) * (width // s) for s in sizes), 1, MOST_WIDTH, "its inputs")
    return channels * height * width


def check(header: Any, entries: dict[str, Any], size: int) -> None:
    """Raise ValueError unless both headers are as docs/format.md allows, for `size` bytes of tensors."""
    form = header.get("format")
    if type(form) is not str or form not in FORMATS:
        raise ValueError(f"its format is {short(form)}, expected {' or '.join(FORMATS)}")
    own = ["stages"] if form == FORMATS[2] else ["crop", "layers"]
    k, shape, facts, _, *_ = fields(header, ["k", "shape", "facts", "format", "sha256", *own], "its header")
    integer(k, 0, 7, "k")
    if type(shape) is not list or len(shape) != 3:
        raise ValueError(f"the shape of its images is {short(shape)}, expected three whole numbers")
    pixels = math.prod(integer(length, 1, MOST_WIDTH, "a side of its images") for length in shape)
    integer(pixels, 1, MOST_WIDTH, "the number of its pixels")
    if type(facts) is not dict or nesting(facts) > MOST_NESTING:
        raise ValueError(
            f"its facts are not an object, or one with more than {MOST_NESTING} levels of objects and lists"
        )
    listed = header[own[-1]]
    if type(listed) is not list or not 1 <= len(listed) <= MOST_LAYERS:
        raise ValueError(f"its {own[-1]} are {short(listed)}, expected a list of 1 to {MOST_LAYERS} objects")
    for sizes in () if own == ["stages"] else listed:
        fields(sizes, KINDS["dist"], "the size of a layer")
    before, layers, after = stages(stages_of(header))
    if own == ["stages"] and not {"clip", "pool", "sum"} & {each["kind"] for each in (*before, *after)}:
        raise ValueError(f"it has no stage clip, pool or sum, so its format is {FORMATS[0]} or {FORMATS[1]}")
    inputs = check_before(before, k, shape)
    names = [f"{number}.{part}" for number in range(len(layers)) for part in ("mask", "weight", "bias")]
    wrong = entries.keys() ^ {*names, "lower", "upper", *(HEAD if {"kind": "head"} in after else [])}
    if wrong:
        raise ValueError(f"these tensors are missing, or do not belong to its format: {short(sorted(wrong))}")
    end = 0
    for name, entry in entries.items():
        kind, sides, offsets = fields(entry, ["dtype", "shape", "data_offsets"], f"the entry of {name}")
        if type(sides) is not list or not 1 <= len(sides) <= 3 or type(offsets) is not list or len(offsets) != 2:
            raise ValueError(f"the entry of {name} is {short(entry)}")
        for number in (*sides, *offsets):
            integer(number, 0, size, f"a number in the entry of {name}")
        if type(kind) is not str or kind not in TYPES:
            raise ValueError(f"the type of {name} is {short(kind)}, expected one of {', '.join(TYPES)}")
    for name, entry in sorted(entries.items(), key=lambda item: item[1]["data_offsets"]):
        if entry["data_offsets"] != [end, end + math.prod(entry["shape"]) * TYPES[entry["dtype"]].itemsize]:
            raise ValueError(f"the bytes of {name} do not fit its shape, or do not follow the tensor before it")
        end = entry["data_offsets"][1]
    integer(end, size, size, "the end of its last tensor")
    wanted = {"lower": ("U8", shape), "upper": ("U8", shape)}
    for number, (outputs, stated) in enumerate((each["outputs"], each["inputs"]) for each in layers):
        integer(stated, inputs, inputs, f"the number of inputs of layer {number}")
        integer(outputs, 1, MOST_WIDTH, f"the number of outputs of layer {number}")
        wanted[f"{number}.mask"] = ("U8", [outputs, -(-inputs // 8)])
        wanted[f"{number}.weight"] = ("I16 I32", entries[f"{number}.weight"]["shape"][:1])  # `layer` counts them
        wanted[f"{number}.bias"] = ("I32", [outputs])
        inputs = outputs
    for count in (each["count"] for each in after if each["kind"] == "sum"):
        integer(inputs % integer(count, 2, MOST_WIDTH, "count"), 0, 0, "what is left of its neurons in sums of count")
        inputs //= count
    if {"kind": "head"} in after:
        hidden, classes = (entries[name]["shape"][:1] for name in ("head.b1", "head.b2"))
        shapes = [[*hidden, inputs], hidden, [*classes, *hidden], classes]
        wanted |= {name: ("F64", each) for name, each in zip(HEAD, shapes, strict=True)}
        integer(hidden[0], 1, MOST_WIDTH, "the number of hidden neurons of its head")
        inputs = classes[0]
    for name, (kinds, each) in wanted.items():
        if entries[name]["dtype"] not in kinds.split() or entries[name]["shape"] != each or 0 in each:
            raise ValueError(f"{name} is {entries[name]['dtype']} {entries[name]['shape']}, expected {kinds} {each}")
    integer(inputs, 2, MOST_WIDTH, "the number of its classes")


def content(path: Path) -> bytes:
    """Read the file, opened once: what was checked is what is read, whatever takes its name meanwhile."""
    handle = os.open(path, os.O_RDONLY | AT_ONCE)
    try:
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode) or about.st_size > MOST_BYTES:
            raise ValueError(f"it is not a regular file of at most {MOST_BYTES} bytes")
        with open(handle, "rb", closefd=False) as file:
            return file.read(about.st_size)
    finally:
        os.close(handle)


def read(path: Path) -> tuple[dict[str, Any], Tensors, str]:
    """Read header, tensors and sha256 of a safetensors file: a length, that much JSON, then the tensors' bytes.

    Raises ValueError, with the name of the file and the reason, for whatever docs/format.md does not allow.
    """
    try:
        data = content(Path(path))
        start = 8 + int.from_bytes(data[:8], "little")
        if start % 8 or start > min(len(data), 8 + MOST_TEXT):
            raise ValueError("it does not begin with the length of its JSON header, a multiple of 8")
        text = data[8:start].decode("ascii")
        entries = parsed(text.rstrip(" "), MOST_TEXT, (",", ":"))
        (inner,) = fields(entries.pop("__metadata__", None), ["linfdist"], "its metadata")
        header = parsed(inner, MOST_HEADER, (", ", ": "))
        if len(text) - len(text.rstrip(" ")) >= 8:
            raise ValueError("more than 7 spaces follow its JSON header")
        check(header, entries, len(data) - start)
        stated = header.pop("sha256")
        digest = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
        tensors: Tensors = {}
        for name, entry in sorted(entries.items()):
            begin, end = (start + offset for offset in entry["data_offsets"])
            digest.update(json.dumps([name, entry["dtype"], entry["shape"]]).encode())
            digest.update(memoryview(data)[begin:end])
            values = np.frombuffer(data, TYPES[entry["dtype"]], math.prod(entry["shape"]), begin)
            tensors[name] = values.reshape(entry["shape"])
        if digest.hexdigest() != stated:
            raise ValueError("it is damaged or was changed, its content does not have the sha256 in its header")
        if (tensors["lower"] > tensors["upper"]).any():
            raise ValueError("its domain is empty, since somewhere the least pixel is above the largest")
        for name in (name for name in HEAD if name in tensors):
            if not abs(tensors[name]).max() <= 1e100:  # so that nothing can overflow; nor is this true of NaN
                raise ValueError(f"{name} is not finite, or larger than 1e100")
        bounds(header, tensors, tensors["lower"], tensors["upper"])
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not an exact network: {error}") from None
    return header, tensors, digest.hexdigest()
