"""Frozen networks in files: one safetensors file that carries its own hash."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..files import load_tensors, save_tensors
from .head import FrozenHead
from .network import MAX_K, FrozenLayer, FrozenNet, grid_inputs

FORMAT, HEAD_FORMAT = "linfdist-exact-1", "linfdist-exact-head-1"
_NAMES = {torch.uint8: "U8", torch.int16: "I16", torch.int32: "I32", torch.float64: "F64"}  # as in the file


def save(network: FrozenNet, path: Path) -> None:
    """Write the network, atomically. Entries that were pruned cost a bit each, kept ones a bit and their weight."""
    header, tensors = contents(network)
    save_tensors(path, tensors, {**header, "sha256": digest(header, tensors)})


def load(path: str | Path) -> FrozenNet:
    """The network in a file. Whatever is damaged, was changed, or could overflow is refused with the reason."""
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist: `linfdist export MODEL --format exact` writes such a file")
    tensors, header = load_tensors(path)
    if header.get("format") not in (FORMAT, HEAD_FORMAT):
        raise ValueError(
            f"{path} is no exact network (format {FORMAT!r} or {HEAD_FORMAT!r}), its format is "
            f"{header.get('format')!r}: "
            "`linfdist export MODEL --format exact` makes one from a trained network"
        )
    stated = header.pop("sha256", None)
    if any(tensor.dtype not in _NAMES for tensor in tensors.values()):
        raise ValueError(f"{path} is damaged: it holds tensors that are not of {', '.join(_NAMES.values())}")
    if digest(header, tensors) != stated:
        raise ValueError(f"{path} is damaged or was changed: its content does not have the sha256 in its header")
    try:
        return _parse(header, tensors)
    except (KeyError, IndexError, RuntimeError, TypeError, ValueError) as error:
        raise ValueError(f"{path} describes no network that can be evaluated: {error}") from None


def contents(network: FrozenNet) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The header, without its hash, and the tensors."""
    header = {
        "format": FORMAT if network.head is None else HEAD_FORMAT,
        "k": network.k,
        "shape": list(network.shape),
        "crop": network.crop,
        "layers": [{"outputs": len(layer.mask), "inputs": layer.mask.shape[1]} for layer in network.layers],
        "facts": dict(network.facts),
    }
    tensors = {"lower": network.lower, "upper": network.upper}
    for number, layer in enumerate(network.layers):
        tensors[f"{number}.mask"] = torch.from_numpy(np.packbits(layer.mask.numpy(), axis=1))  # (O, ceil(I / 8))
        tensors[f"{number}.weight"] = layer.weight[layer.mask]  # (kept,), row by row
        tensors[f"{number}.bias"] = layer.bias
    if network.head is not None:
        tensors |= {f"head.{name}": tensor for name, tensor in network.head.tensors().items()}
    return header, tensors


def digest(header: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str:
    """The sha256 of everything: the header as JSON with sorted keys, then what each tensor is, and its bytes."""
    total = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    for name in sorted(tensors):
        tensor = tensors[name].contiguous()
        total.update(json.dumps([name, _NAMES[tensor.dtype], list(tensor.shape)]).encode())
        total.update(tensor.numpy().tobytes())
    return total.hexdigest()


def _parse(header: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> FrozenNet:
    """Build the network again; ranges are computed afresh, so that no file can make an integer overflow."""
    k, crop, shape = header["k"], header["crop"], tuple(header["shape"])
    if type(k) is not int or not 0 <= k <= MAX_K:
        raise ValueError(f"k = {k!r}, expected 0 ... {MAX_K}")
    lower, upper = tensors["lower"], tensors["upper"]
    for name, bound in (("lower", lower), ("upper", upper)):
        if bound.dtype != torch.uint8 or len(shape) != 3 or bound.shape != shape:
            raise ValueError(f"the domain's {name} images are {bound.dtype} {tuple(bound.shape)}, not uint8 {shape}")
    if (lower > upper).any():
        raise ValueError("its domain is empty")
    if crop is not None and (type(crop) is not int or not 1 <= crop <= min(shape[1:])):
        raise ValueError(f"crop = {crop!r} of images {shape}")
    low, high = (grid_inputs(bound[None], crop, k)[0].long() for bound in (lower, upper))
    layers: list[FrozenLayer] = []
    for number, sizes in enumerate(header["layers"]):
        inputs, outputs = sizes["inputs"], sizes["outputs"]
        bits, weight, bias = (tensors[f"{number}.{part}"] for part in ("mask", "weight", "bias"))
        found = (len(low), bits.dtype, tuple(bits.shape), tuple(bias.shape), bias.dtype)
        expected = (inputs, torch.uint8, (outputs, -(-inputs // 8)), (outputs,), torch.int32)
        if found != expected:
            raise ValueError(f"layer {number} has {found}, expected {expected}")
        whole = np.unpackbits(bits.numpy(), axis=1)
        mask = torch.from_numpy(whole[:, :inputs].astype(np.bool_))
        if whole[:, inputs:].any() or weight.shape != (int(mask.sum()),):
            raise ValueError(f"layer {number} has {tuple(weight.shape)} weights for {int(mask.sum())} entries")
        middle = (low + high).div(2, rounding_mode="floor").to(weight.dtype)
        full = middle.repeat(outputs, 1).masked_scatter_(mask, weight)
        layers.append(FrozenLayer(full, mask, bias, low, high))
        low, high = layers[-1].range
    head = None
    if header["format"] == HEAD_FORMAT:
        head = FrozenHead(*(tensors[f"head.{name}"] for name in ("w1", "b1", "w2", "b2")))
    if not layers or len(tensors) != 2 + 3 * len(layers) + (4 if head else 0):
        raise ValueError(f"{len(layers)} layers, {len(tensors)} tensors")
    return FrozenNet((shape[0], shape[1], shape[2]), crop, k, lower, upper, tuple(layers), header["facts"], head)
