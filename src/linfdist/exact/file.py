"""Frozen networks in files: one safetensors file that carries its own hash. docs/format.md says what it may hold."""

import hashlib
import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..files import HEADER, excerpt, read_bytes, save_tensors, tensors_in
from .head import FrozenHead
from .network import FrozenLayer, FrozenNet
from .stem import MAX_K, Pool, Stem

FORMAT, HEAD_FORMAT, STAGES_FORMAT = FORMATS = "linfdist-exact-1", "linfdist-exact-head-1", "linfdist-exact-2"
LARGEST_FILE = 2**31  # bytes
LONGEST_TEXT = 2**20  # characters of the JSON header of the safetensors file
LONGEST_HEADER = 2**18  # characters of the JSON header of the network, which is a string in that header
MOST_LAYERS = 1000
WIDEST = 2**20  # pixels of an image, and neurons of a layer
DEEPEST = 16  # objects and lists inside each other in `facts`
_NAMES = {torch.uint8: "U8", torch.int16: "I16", torch.int32: "I32", torch.float64: "F64"}  # as in the file
_KEYS = {"format", "k", "shape", "facts", "sha256"}  # of every format
_OWN_KEYS = {FORMAT: {"crop", "layers"}, HEAD_FORMAT: {"crop", "layers"}, STAGES_FORMAT: {"stages"}}
_STAGE_KEYS = {
    "crop": {"side"}, "clip": {"low", "high"}, "pool": {"sizes", "steps"}, "dist": {"outputs", "inputs"},
    "sum": {"count"}, "head": set[str](),
}  # fmt: skip
_ORDER = re.compile("(crop )?(clip )?(pool )?(dist )+(sum |head )?")


def save(network: FrozenNet, path: str | Path) -> None:
    """Write the network atomically. A pruned entry costs one bit, a kept one a bit and its weight.

    Raises ValueError for a network that `load` would refuse because of its size or its facts.
    """
    header, tensors = contents(network)
    header["sha256"] = digest(header, tensors)
    size = sum(tensor.numel() * tensor.itemsize for tensor in tensors.values())
    try:
        _check(_json(json.dumps(header), LONGEST_HEADER, None))
        if size > LARGEST_FILE - LONGEST_TEXT - 8:
            raise ValueError(f"its tensors have {size} bytes, more than {LARGEST_FILE - LONGEST_TEXT - 8}")
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} was not written, because it could not be loaded: {error}") from None
    save_tensors(Path(path), tensors, header)


def load(path: str | Path) -> FrozenNet:
    """Load the network in a file. Raises ValueError, with the reason, for whatever docs/format.md does not allow."""
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist: `linfdist export MODEL --format exact` writes such a file")
    return parse(read_bytes(path, LARGEST_FILE), path)


def parse(content: bytes, path: Path) -> FrozenNet:
    """Build the network from the content of the file at `path`: see `load`."""
    try:
        header = _header(content)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not an exact network: {error}") from None
    tensors = tensors_in(content, path)
    stated = header.pop("sha256")
    if digest(header, tensors) != stated:
        raise ValueError(f"{path} is damaged or was changed: its content does not have the sha256 in its header")
    try:
        return _parse(header, tensors)
    except ValueError as error:
        raise ValueError(f"{path} describes no network that can be evaluated: {error}") from None


def contents(network: FrozenNet) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the header, without its hash, and the tensors."""
    layers = [{"outputs": len(layer.mask), "inputs": layer.mask.shape[1]} for layer in network.layers]
    plain = network.stem.clip is None and network.stem.pool is None and network.count == 1
    own: dict[str, Any] = {"crop": network.crop, "layers": layers}
    form = FORMAT if network.head is None else HEAD_FORMAT
    if not plain:
        own = {"stages": _stages(network.stem, layers, network.count, network.head is not None)}
        form = STAGES_FORMAT
    header = {"format": form, "k": network.k, "shape": list(network.shape), **own, "facts": dict(network.facts)}
    tensors = {"lower": network.lower, "upper": network.upper}
    for number, layer in enumerate(network.layers):
        tensors[f"{number}.mask"] = torch.from_numpy(np.packbits(layer.mask.numpy(), axis=1))  # (O, ceil(I / 8))
        tensors[f"{number}.weight"] = layer.weight[layer.mask]  # (kept,), row by row
        tensors[f"{number}.bias"] = layer.bias
    if network.head is not None:
        tensors |= {f"head.{name}": tensor for name, tensor in network.head.tensors().items()}
    return header, tensors


def _stages(stem: Stem, layers: list[dict[str, int]], count: int, head: bool) -> list[dict[str, Any]]:
    """List the stages that an image goes through, in this order."""
    stages: list[dict[str, Any]] = []
    if stem.crop is not None:
        stages.append({"kind": "crop", "side": stem.crop})
    if stem.clip is not None:
        stages.append({"kind": "clip", "low": stem.clip[0], "high": stem.clip[1]})
    if stem.pool is not None:
        stages.append({"kind": "pool", "sizes": list(stem.pool.sizes), "steps": stem.pool.steps})
    stages += [{"kind": "dist", **sizes} for sizes in layers]
    if count > 1:
        stages.append({"kind": "sum", "count": count})
    return [*stages, {"kind": "head"}] if head else stages


def digest(header: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str:
    """Hash everything by sha256: the header as JSON with sorted keys, then each tensor's description and bytes."""
    total = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    for name in sorted(tensors):
        tensor = tensors[name].contiguous()
        total.update(json.dumps([name, _NAMES[tensor.dtype], list(tensor.shape)]).encode())
        total.update(tensor.numpy().tobytes())
    return total.hexdigest()


def _header(content: bytes) -> dict[str, Any]:
    """Return the network's header; ValueError unless the JSON texts have the form and the content that are allowed."""
    if len(content) > LARGEST_FILE:
        raise ValueError(f"it is not a regular file of at most {LARGEST_FILE} bytes")
    length = int.from_bytes(content[:8], "little")
    if length % 8 or length > LONGEST_TEXT:
        raise ValueError("it does not begin with the length of a JSON header, a multiple of 8")
    text = content[8 : 8 + length].decode("ascii")
    if len(text) != length or text.endswith(" " * 8):
        raise ValueError("its JSON header is shorter than the length it begins with")
    entries = _json(text.rstrip(" "), LONGEST_TEXT, (",", ":"))
    metadata = entries.pop("__metadata__", None)
    if not isinstance(metadata, dict) or metadata.keys() != {HEADER}:
        raise ValueError(f"its metadata must have the key {HEADER!r} and no other")
    header = _json(metadata[HEADER], LONGEST_HEADER, None)
    _check(header)
    for name, entry in entries.items():
        if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
            raise ValueError(f"the entry of tensor {excerpt(name)} must have the keys dtype, shape and data_offsets")
        for key, lengths in (("shape", (1, 2, 3)), ("data_offsets", (2,))):
            numbers = entry[key]
            if not isinstance(numbers, list) or len(numbers) not in lengths or not all(map(_count, numbers)):
                raise ValueError(f"tensor {excerpt(name)} has the {key} {excerpt(numbers)}")
        if entry["dtype"] not in _NAMES.values():
            raise ValueError(
                f"tensor {excerpt(name)} is of type {excerpt(entry['dtype'])}, not of {', '.join(_NAMES.values())}"
            )
    return header


def _json(text: Any, longest: int, separators: tuple[str, str] | None) -> dict[str, Any]:
    """Parse a JSON object, and refuse it unless it is written as json.dumps would write it.

    So no key appears twice, no number has a second form, and strings and numbers can be hashed as they stand.
    """
    if not isinstance(text, str) or len(text) > longest:
        raise ValueError(f"its JSON header must be a text of at most {longest} characters")
    value = json.loads(text)
    if not isinstance(value, dict) or json.dumps(value, separators=separators) != text:
        raise ValueError("its JSON header is not an object in the form that json.dumps writes")
    json.dumps(value, allow_nan=False, ensure_ascii=False).encode()  # ValueError for NaN and half a surrogate pair
    return value


def _check(header: Mapping[str, Any]) -> None:
    """Raise ValueError unless every entry has the type and the range that the format allows."""
    form = header.get("format")
    if form not in FORMATS:
        raise ValueError(
            f"its format is {excerpt(form)}, expected {', '.join(FORMATS)}; "
            "`linfdist export MODEL --format exact` makes one from a trained network"
        )
    keys = _KEYS | _OWN_KEYS[form]
    if header.keys() != keys:
        raise ValueError(f"its header has the keys {excerpt(sorted(header))}, expected {sorted(keys)}")
    k, shape, facts = (header[key] for key in ("k", "shape", "facts"))
    if type(k) is not int or not 0 <= k <= MAX_K:
        raise ValueError(f"k = {excerpt(k)}, expected 0 ... {MAX_K}")
    if not isinstance(shape, list) or len(shape) != 3 or not all(map(_size, shape)) or math.prod(shape) > WIDEST:
        raise ValueError(f"shape = {excerpt(shape)}, expected three whole numbers, {WIDEST} pixels at most")
    if not isinstance(facts, dict) or _deeper(facts, DEEPEST):
        raise ValueError(f"its facts must be an object, with at most {DEEPEST} objects and lists inside each other")
    if form == STAGES_FORMAT:
        _check_stages(header["stages"], k, shape)
        return
    crop, layers = header["crop"], header["layers"]
    if crop is not None and (not _size(crop) or crop > min(shape[1:])):
        raise ValueError(f"crop = {excerpt(crop)}, expected a whole number that fits images {shape}")
    if not isinstance(layers, list) or not 0 < len(layers) <= MOST_LAYERS:
        raise ValueError(f"layers = {excerpt(layers)}, expected a list of 1 to {MOST_LAYERS} objects")
    for number, sizes in enumerate(layers):
        if not isinstance(sizes, dict) or sizes.keys() != {"inputs", "outputs"} or not all(map(_size, sizes.values())):
            raise ValueError(
                f"layer {number} has the sizes {excerpt(sizes)}, expected outputs and inputs up to {WIDEST}"
            )


def _check_stages(stages: Any, k: int, shape: list[int]) -> None:
    if not isinstance(stages, list) or not 0 < len(stages) <= MOST_LAYERS:
        raise ValueError(f"stages = {excerpt(stages)}, expected a list of 1 to {MOST_LAYERS} objects")
    for stage in stages:
        kind = stage.get("kind") if isinstance(stage, dict) else None
        if not isinstance(kind, str) or kind not in _STAGE_KEYS or stage.keys() != _STAGE_KEYS[kind] | {"kind"}:
            raise ValueError(f"a stage is {excerpt(stage)}, expected a kind of {', '.join(_STAGE_KEYS)} with its keys")
    kinds = [stage["kind"] for stage in stages]
    if not _ORDER.fullmatch("".join(f"{kind} " for kind in kinds)):
        raise ValueError(f"the order of its stages is {excerpt(kinds)}, expected crop, clip, pool, dist, sum or head")
    if not {"clip", "pool", "sum"} & set(kinds):
        raise ValueError(f"without clip, pool or sum its format is {FORMAT} or {HEAD_FORMAT}, not {STAGES_FORMAT}")
    for stage in stages:
        numbers = [value for key, value in stage.items() if key not in ("kind", "low", "high", "steps", "sizes")]
        sizes = stage.get("sizes", [1])
        if not all(map(_size, numbers)) or not isinstance(sizes, list) or not sizes or not all(map(_size, sizes)):
            raise ValueError(f"a stage is {excerpt(stage)}, expected whole numbers from 1 to {WIDEST}")
        if stage.get("side", 1) > min(shape[1:]) or stage.get("count", 2) < 2:
            raise ValueError(f"a stage is {excerpt(stage)}, which does not fit images {shape}")
        if not all(_count(stage.get(key, 1)) for key in ("low", "high", "steps")):
            raise ValueError(f"a stage is {excerpt(stage)}, expected whole numbers that fit 32 bits")
    _stem(stages, k)


def _stem(stages: list[dict[str, Any]], k: int) -> Stem:
    """Build the stem; raise ValueError for inconsistent numbers."""
    own = {stage["kind"]: stage for stage in stages}
    clip = (own["clip"]["low"], own["clip"]["high"]) if "clip" in own else None
    pool = Pool(tuple(own["pool"]["sizes"]), own["pool"]["steps"]) if "pool" in own else None
    return Stem(k, own["crop"]["side"] if "crop" in own else None, clip, pool)


def _size(value: Any) -> bool:
    return type(value) is int and 1 <= value <= WIDEST


def _count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= LARGEST_FILE


def _deeper(value: Any, levels: int) -> bool:
    """Return whether objects and lists are nested deeper than this."""
    if not isinstance(value, dict | list):
        return False
    return levels == 0 or any(
        _deeper(each, levels - 1) for each in (value.values() if isinstance(value, dict) else value)
    )


def _parse(header: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> FrozenNet:
    """Build the network; ranges are computed again, so that no file can make an integer overflow."""
    shape, form = tuple(header["shape"]), header["format"]
    if form == STAGES_FORMAT:
        stages = header["stages"]
    else:
        stages = _stages(Stem(header["k"], header["crop"]), header["layers"], 1, form == HEAD_FORMAT)
    stem = _stem(stages, header["k"])
    sizes = [stage for stage in stages if stage["kind"] == "dist"]
    count, headed = stages[-1].get("count", 1), stages[-1]["kind"] == "head"
    names = {f"{number}.{part}" for number in range(len(sizes)) for part in ("mask", "weight", "bias")}
    names |= {"lower", "upper"}
    if headed:
        names |= {f"head.{name}" for name in ("w1", "b1", "w2", "b2")}
    if tensors.keys() != names:
        raise ValueError(f"missing or needless tensors: {excerpt(sorted(tensors.keys() ^ names))}")
    lower, upper = tensors["lower"], tensors["upper"]
    for name, bound in (("lower", lower), ("upper", upper)):
        if bound.dtype != torch.uint8 or bound.shape != shape:
            raise ValueError(f"the domain's {name} images are {bound.dtype} {tuple(bound.shape)}, not uint8 {shape}")
    if (lower > upper).any():
        raise ValueError("its domain is empty")
    if stem.size(shape) > WIDEST:
        raise ValueError(f"it has {stem.size(shape)} means of blocks, at most {WIDEST} are allowed")
    low, high = (stem(bound[None])[0].long() for bound in (lower, upper))
    layers: list[FrozenLayer] = []
    for number, each in enumerate(sizes):
        layers.append(_layer(tensors, number, each["inputs"], each["outputs"], low, high))
        low, high = layers[-1].range
    head = None
    if headed:
        head = FrozenHead(*(tensors[f"head.{name}"] for name in ("w1", "b1", "w2", "b2")))
        if max(len(head.b1), len(head.b2)) > WIDEST:
            raise ValueError(f"the head has {len(head.b1)} neurons and {len(head.b2)} classes, at most {WIDEST}")
    size = (shape[0], shape[1], shape[2])
    return FrozenNet(size, stem, lower, upper, tuple(layers), header["facts"], head, count)


def _layer(
    tensors: Mapping[str, Tensor], number: int, inputs: int, outputs: int, low: Tensor, high: Tensor
) -> FrozenLayer:
    """Build a layer for inputs from low to high (I,)."""
    bits, weight, bias = (tensors[f"{number}.{part}"] for part in ("mask", "weight", "bias"))
    found = (len(low), bits.dtype, tuple(bits.shape), tuple(bias.shape), bias.dtype)
    expected = (inputs, torch.uint8, (outputs, -(-inputs // 8)), (outputs,), torch.int32)
    if found != expected:
        raise ValueError(f"layer {number} has {found}, expected {expected}")
    if weight.dtype not in (torch.int16, torch.int32):
        raise ValueError(f"the weights of layer {number} are {weight.dtype}, expected int16 or int32")
    whole = np.unpackbits(bits.numpy(), axis=1)
    mask = torch.from_numpy(whole[:, :inputs].astype(np.bool_))
    if whole[:, inputs:].any() or weight.shape != (int(mask.sum()),):
        raise ValueError(f"layer {number} has {tuple(weight.shape)} weights for {int(mask.sum())} entries")
    middle = (low + high).div(2, rounding_mode="floor").to(weight.dtype)
    return FrozenLayer(middle.repeat(outputs, 1).masked_scatter_(mask, weight), mask, bias, low, high)
