"""Networks in files: weights and configuration in one safetensors file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..files import excerpt, load_tensors, save_tensors
from ..runs.folder import CHECKPOINT, MODEL
from .base import PixelNet
from .compact import compress, expand, matrices
from .config import from_config, members_of


def save(network: PixelNet, path: str | Path, header: Mapping[str, Any] | None = None, compact: bool = False) -> None:
    """Write the network, atomically; `header`, plain JSON, is kept beside its configuration.

    compact: half the size, by rounding all matrices to 16 bits. That makes another network of the same kind: what
    `load` gives, on every machine the same, is what is to be measured and certified, not what was saved.
    """
    if not network.config:
        raise ValueError(f"a {type(network).__name__} cannot be saved: it has no configuration to build it from again")
    tensors: dict[str, Tensor] = network.state_dict()
    content = {**(header or {}), "config": network.config}
    if network.class_names is not None:
        content["classes"] = list(network.class_names)
    if network.resize is not None:
        content["resize"] = network.resize
    if compact:
        tensors, content["steps"] = compress(tensors, matrices(network))
    save_tensors(Path(path), tensors, content)


def load(source: str | Path) -> PixelNet:
    """The network in a file, or in the folder of a finished run: in eval mode, p = inf, for pixels of [0, 1].

    Anything that is not a whole safetensors file with matching names, shapes and finite weights is refused.
    """
    path = Path(source)
    if path.is_dir():
        path = path / MODEL
        if not path.exists():
            unfinished = (path.parent / CHECKPOINT).exists()
            hint = "its run is not finished: resume it first" if unfinished else f"it holds no {MODEL}"
            raise FileNotFoundError(f"{path.parent} has no network to load: {hint}")
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist: give a {MODEL} or the folder of a finished run")
    tensors, header = load_tensors(path)
    if not isinstance(header.get("config"), dict):
        raise ValueError(f"{path} holds no network: its header has no configuration")
    network = _of_dtype(_describe(header["config"], tensors, path), tensors)
    if "steps" in header:
        tensors = expand(tensors, header["steps"], network, path)
    _check_fit(network, tensors, path)
    network = network.to_empty(device="cpu")
    load_into(network, tensors, path)
    network.class_names, network.resize = _names(header, network.classes, path), _resize(header, network, path)
    return network


def _names(header: Mapping[str, Any], count: int, path: Path) -> tuple[str, ...] | None:
    names = header.get("classes")
    if names is None:
        return None
    if not isinstance(names, list) or len(names) != count or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{path}: its classes must be {count} names, got {excerpt(names)}")
    return tuple(names)


def _resize(header: Mapping[str, Any], network: PixelNet, path: Path) -> int | None:
    side = header.get("resize")
    if side is not None and (type(side) is not int or network.shape[1:] != (side, side)):
        raise ValueError(f"{path}: resizes images to {excerpt(side)}, which does not fit its network {network.shape}")
    return side


def _describe(config: Mapping[str, Any], tensors: Mapping[str, Tensor], path: Path) -> PixelNet:
    """The network without memory for its weights, until those of the file are known to fit: a header is only words."""
    try:
        depth = _layers(config)
        if depth > len(tensors):
            raise ValueError(f"{depth} layers, but the file holds {len(tensors)} tensors")
        with torch.device("meta"):
            return from_config(config)
    except (ArithmeticError, RuntimeError, TypeError, ValueError) as error:
        raise ValueError(f"{path} describes a network that cannot be built: {error}") from None


def _of_dtype(network: PixelNet, tensors: Mapping[str, Tensor]) -> PixelNet:
    """The network in the precision of the file, and not in torch's default one, if the file has one of the two."""
    found = {tensor.dtype for tensor in tensors.values() if tensor.is_floating_point()}
    return network.to(found.pop()) if found in ({torch.float32}, {torch.float64}) else network


def _layers(config: Mapping[str, Any]) -> int:
    """Count the layers that the configuration promises, those of members included."""
    depth = config.get("depth")
    lists = [config.get(key) for key in ("hidden", "convolutions")]
    listed = sum(len(each) for each in lists if isinstance(each, list))
    return (depth if isinstance(depth, int) else 0) + listed + sum(_layers(each) for each in members_of(config))


def load_into(module: nn.Module, tensors: Mapping[str, Tensor], path: Path) -> None:
    """Copy tensors into a module; names and shapes must match exactly, values must be finite."""
    _check_fit(module, tensors, path)
    for name, tensor in tensors.items():
        if not tensor.isfinite().all():
            raise ValueError(f"{path}: {name} has values that are not finite")
    try:
        module.load_state_dict(dict(tensors))
    except ValueError as error:  # a layer refuses its own values, such as a std of 0
        raise ValueError(f"{path}: {error}") from None


def _check_fit(module: nn.Module, tensors: Mapping[str, Tensor], path: Path) -> None:
    own = module.state_dict()
    missing, unknown = sorted(own.keys() - tensors.keys()), sorted(tensors.keys() - own.keys())
    if missing or unknown:
        what = f"missing {missing or 'nothing'}, unknown {unknown or 'nothing'}"
        raise ValueError(f"{path} does not fit this network: {what}")
    for name, tensor in tensors.items():
        if own[name].shape != tensor.shape or own[name].dtype != tensor.dtype:
            raise ValueError(
                f"{path} does not fit this network: {name} is {tensor.dtype} {tuple(tensor.shape)}, "
                f"expected {own[name].dtype} {tuple(own[name].shape)}"
            )
