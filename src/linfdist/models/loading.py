"""Networks in files: build them from their configuration, save them, and load them by name, file or run."""

import copy
import hashlib
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from ..errors import described
from ..files import excerpt, header_in, read_bytes, save_tensors, tensors_in
from ..recipes.networks import NETWORKS
from ..runs.folder import CHECKPOINT, MODEL
from . import zoo
from .base import ABOVE, Network, PixelNet, construct
from .composed import Composed, body_of, readout_of
from .mean import Mean
from .packing import PACKED, pack, unpack
from .pruning import prune as pruned_of

MODELS: dict[str, type[PixelNet]] = {  # by the names that recipes use
    name: getattr(import_module(f".{network.place[0]}", __package__), network.place[1])
    for name, network in NETWORKS.items()
}
CLASSES: dict[str, type[PixelNet]] = {  # by the names that configurations use
    **{network.__name__: network for network in MODELS.values()},
    "Composed": Composed,
    "Mean": Mean,
}
HUB = "hf:"  # what the names of networks on the Hugging Face Hub begin with
LARGEST = 2**15 - 1  # of int16
_EXPONENTS = range(-100, 101)  # far from where float32 ends, so that every multiple is exact
_STEP = re.compile(r"2\^(-?[0-9]{1,3})")
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")
MOST_NAMED = 16  # members of a mean


def from_config(config: Mapping[str, Any]) -> PixelNet:
    """Build the network that `config` (see `PixelNet`) describes, with new weights, in eval mode.

    Raises ValueError that names unknown and missing keys. A network that is made of others has their configurations in
    its own, as `members`.
    """
    parts = {key: make(config[key]) for key, make in _PARTS.items() if key in config}
    return construct({**config, **parts}, "network", lambda: CLASSES).eval()


def _members_of(configs: object) -> list[PixelNet]:
    return [from_config(each) for each in _mappings(configs)]


def _mappings(members: object) -> list[Mapping[str, Any]]:
    if not isinstance(members, list) or not all(isinstance(each, Mapping) for each in members):
        raise ValueError(f"members must be a list of configurations of networks, got {str(members)[:60]!r}")
    return members


_PARTS: dict[str, Callable[[object], object]] = {"members": _members_of, "body": body_of, "readout": readout_of}
# What networks are made of, by the keys of their configurations.


def save(
    network: Network,
    path: str | Path,
    header: Mapping[str, Any] | None = None,
    compact: bool = False,
    prune: bool = False,
    members: Sequence[str] = (),
) -> None:
    """Write the network, atomically; `header`, plain JSON, is kept beside its configuration. `load` reads the file.

    compact: half the size, by rounding all matrices to 16 bits. The rounded network is another one: measure and certify
    what `load` returns, which is the same on every machine.
    prune: a fraction of the size, without the weights that never count for images of [0, 1]: see `prune`. What `load`
    gives has the same bits on these, but is no good start for trainings.
    members: names of networks that lie beside the file, as NAME.safetensors, or are of the zoo. The file of a `Mean`
    names those members, with their sha256, and holds the others.
    """
    if isinstance(network, Network) and network.exact:
        if header or compact or prune or members:
            raise ValueError(
                "header, compact, prune, members: an exact network has a file of its own kind, which takes none"
            )
        import_module(ABOVE["linfdist-exact"]).save(network, path)
        return
    if not isinstance(network, PixelNet):
        raise TypeError(f"network must be a network, got {described(network)}: ld.save(network, path)")
    if prune:
        network = pruned_of(_rounded(network) if compact else network)
    config = network.config
    if isinstance(network, Composed):
        network.check_described()
    if not config or CLASSES.get(config["class"]) is not type(network):
        raise ValueError(f"a {type(network).__name__} cannot be saved: it has no configuration to build it from again")
    tensors: dict[str, Tensor] = network.state_dict()
    content = {**(header or {}), "config": config}
    if network.class_names is not None:
        content["classes"] = list(network.class_names)
    if network.resize is not None:
        content["resize"] = network.resize
    if network.pruned:
        content["pruned"] = True
    if members:
        tensors, content["config"] = _name_members(network, members, Path(path), prune)
    if compact:
        tensors, content["steps"] = compress(tensors, matrices(network) & tensors.keys())
    if prune and (packed := pack(tensors)) is not None:
        tensors, content[PACKED] = {PACKED: packed[0]}, packed[1]
    save_tensors(Path(path), tensors, content)


def _rounded(network: PixelNet) -> PixelNet:
    """Return the network that `load` would give after `save` with `compact`."""
    own = copy.deepcopy(network)
    tensors, steps = compress(own.state_dict(), matrices(own))
    own.load_state_dict(expand(tensors, steps, own, Path()))
    return own


def load(source: str | os.PathLike[str], folder: Path | None = None) -> Network:
    """Load a network by its name in the zoo ("mnist-0.3"), or by the path of its file or of a finished run's folder.

    "hf:owner/name" is one on the Hugging Face Hub (extra `hub`), "hf:owner/name@revision#sha256" always the same one.

    A float network is in eval mode, at p = inf, and takes pixels of [0, 1], shape (B, C, H, W). A file that
    `linfdist export --format exact` has written gives an exact network, which takes 8-bit images of that shape. A name
    of the zoo always means its network; a path of the same name is written "./mnist-0.3". folder: another zoo.

    A file is read once. Anything that is not a whole safetensors file with matching names, shapes and finite weights is
    refused, and so is a file of the zoo that is not the one that its card describes.
    """
    return parse(*read(source, folder))


def read(source: str | os.PathLike[str], folder: Path | None = None) -> tuple[bytes, Path]:
    """Read the file of a network, once, and verify one of the zoo; the content comes with the file's path."""
    if not isinstance(source, str | os.PathLike):
        raise TypeError(f"source must be the name of a network or a path, got {described(source)}")
    if isinstance(source, str) and source.startswith(HUB):
        return import_module(f"{__package__}.hub").fetch(source)  # which imports this file
    path = found = zoo.find(source, folder)
    if path.is_dir():
        path = path / MODEL
        if not path.exists():
            unfinished = (path.parent / CHECKPOINT).exists()
            hint = "its run is not finished: resume it first" if unfinished else f"it holds no {MODEL}"
            raise FileNotFoundError(f"{path.parent} has no network to load: {hint}")
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist: give a {MODEL} or the folder of a finished run")
    content = read_bytes(path)
    if found.parent == (folder or zoo.FILES) and found != Path(source):  # it is of the zoo
        zoo.check(path, content)
    elif path != found:
        import_module(f"{__package__}.hub").check_folder(path, content)
    return content, path


def parse(content: bytes, path: Path, named: bool = False) -> Network:
    """Build the network of a file's content, which was read from `path`: see `load`; named: it is one of a mean's."""
    header = header_in(content, path)
    if str(header.get("format")).startswith("linfdist-exact"):
        return cast(Network, import_module(ABOVE["linfdist-exact"]).parse(content, path))
    if not isinstance(header.get("config"), dict):
        raise ValueError(f"{path} holds no network: its header has no configuration")
    tensors = tensors_in(content, path)
    if PACKED in header:
        tensors = unpack(tensors, header[PACKED], path)
    config, others = _with_members(header["config"], path, named)
    if twice := sorted(tensors.keys() & others.keys()):
        raise ValueError(f"{path}: holds {excerpt(twice[0])} of a member that it names")
    tensors |= others
    network = _of_dtype(_describe(config, tensors, path), tensors)
    if "steps" in header:
        tensors = expand(tensors, header["steps"], network, path)
    _check_fit(network, tensors, path)
    network._apply(lambda tensor: torch.empty(tensor.shape, dtype=tensor.dtype))  # `to_empty` imports symbolic shapes
    load_into(network, tensors, path, own=True)
    network._file_sha256 = hashlib.sha256(content).hexdigest()
    network.class_names, network.resize = _names(header, network.classes, path), _resize(header, network, path)
    network._pruned = _is_pruned(header, path)
    return network


# --- members by name ------------------------------------------------------------------------------


def _name_members(
    network: PixelNet, names: Sequence[str], path: Path, prune: bool
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors and the configuration of a mean without those of the members that have these names."""
    if not isinstance(network, Mean):
        raise ValueError(f"members: a {type(network).__name__} has none; only the file of a Mean names members")
    tensors, config = network.state_dict(), dict(network.config)
    config["members"] = list(config["members"])
    _check_names(names, path)
    for name in names:
        content, file = _find_member(name, None, path)
        other = parse_floats(content, file, named=True)
        own = (pruned_of(other) if prune else other).state_dict()
        found = [place for place, each in enumerate(network.members) if _same(each.state_dict(), own)]
        if not found or other.config != network.members[found[0]].config:
            raise ValueError(f"members: no member of this mean is the network {name!r} ({file})")
        config["members"][found[0]] = {"name": name, "sha256": hashlib.sha256(content).hexdigest()}
        tensors = {key: each for key, each in tensors.items() if not key.startswith(_prefix(found[0]))}
    return tensors, config


def _same(one: Mapping[str, Tensor], two: Mapping[str, Tensor]) -> bool:
    return one.keys() == two.keys() and all(torch.equal(one[key].cpu(), two[key]) for key in one)


def _prefix(place: int) -> str:
    return f"mean.members.{place}."


def _with_members(config: Mapping[str, Any], path: Path, named: bool) -> tuple[Mapping[str, Any], dict[str, Tensor]]:
    """Return the configuration with that of each member that it names, and the tensors of these."""
    members, tensors = config.get("members"), dict[str, Tensor]()
    places = members if config.get("class") == "Mean" and isinstance(members, list) else []
    wanted = {
        k: each for k, each in enumerate(places) if isinstance(each, Mapping) and each.keys() == {"name", "sha256"}
    }
    names = [each["name"] for each in wanted.values()]
    if wanted and named:
        raise ValueError(f"{path}: a network that is a member by its name must not name members of its own")
    _check_names(names, path)
    found = list(places)
    for place, each in wanted.items():
        content, file = _find_member(each["name"], each["sha256"], path)
        network = parse(content, file, named=True)
        if network.exact:
            raise ValueError(f"{path}: its member {excerpt(each['name'])} is an exact network")
        found[place] = network.floats.config
        tensors |= {_prefix(place) + key: tensor for key, tensor in network.floats.state_dict().items()}
    return {**config, "members": found} if wanted else config, tensors


def _check_names(names: Sequence[object], path: Path) -> None:
    if len(names) > MOST_NAMED or any(names.count(name) > 1 for name in names):
        raise ValueError(f"{path}: members by name must be at most {MOST_NAMED} different ones, got {excerpt(names)}")


def _find_member(name: object, sha256: object, path: Path) -> tuple[bytes, Path]:
    """Read the network of that name, beside the file of the mean or else of the zoo, which has that sha256, if any."""
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise ValueError(
            f"{path}: a member by name is a network of the zoo, or beside this file, such as mnist-0.3; "
            f"got {excerpt(name)}"
        )
    files = [folder / f"{name}.safetensors" for folder in dict.fromkeys((path.parent, zoo.FILES))]
    there = {file: read_bytes(file) for file in files if file.is_file()}
    for file, content in there.items():
        if sha256 is None or hashlib.sha256(content).hexdigest() == sha256:
            return content, file
    if not there:
        raise FileNotFoundError(
            f"{path} is a mean with {name!r}, which is neither beside it nor in the zoo: get {files[0]}"
        )
    raise ValueError(
        f"{path} is a mean with another {name!r} than {' and '.join(map(str, there))}: get the file with the sha256 "
        f"{excerpt(sha256)}"
    )


# --- one network ----------------------------------------------------------------------------------


def load_floats(source: str | os.PathLike[str]) -> PixelNet:
    """Load a network in floating point, to train or to build others from; TypeError for an exact one."""
    return parse_floats(*read(source))


def parse_floats(content: bytes, path: Path, named: bool = False) -> PixelNet:
    """Build the float network from the content of the file at `path`: see `load_floats` and `parse`."""
    network = parse(content, path, named)
    if network.exact:
        raise TypeError(f"{path} is an exact network: give one in floating point")
    return network.floats


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


def _is_pruned(header: Mapping[str, Any], path: Path) -> bool:
    pruned = header.get("pruned", False)
    if type(pruned) is not bool:
        raise ValueError(f"{path}: pruned must be true or false, got {excerpt(pruned)}")
    return pruned


def _describe(config: Mapping[str, Any], tensors: Mapping[str, Tensor], path: Path) -> PixelNet:
    """Build the network without memory for its weights until the file's tensors are known to fit."""
    try:
        depth = _layers(config)
        if depth > len(tensors):
            raise ValueError(f"{depth} layers, but the file holds {len(tensors)} tensors")
        with torch.device("meta"):
            network = from_config(config)
            for each in network.modules():
                if isinstance(each, Composed):
                    each.check_composition()
            return network
    except (ArithmeticError, RuntimeError, TypeError, ValueError) as error:
        raise ValueError(f"{path} describes a network that cannot be built: {error}") from None


def _of_dtype(network: PixelNet, tensors: Mapping[str, Tensor]) -> PixelNet:
    """Return the network in the precision of the file, if it has one, instead of torch's default precision."""
    found = {tensor.dtype for tensor in tensors.values() if tensor.is_floating_point()}
    return network.to(found.pop()) if found in ({torch.float32}, {torch.float64}) else network


def _layers(config: Mapping[str, Any]) -> int:
    """Count the layers that the configuration promises, those of members included."""
    depth = config.get("depth")
    lists = [config.get(key) for key in ("hidden", "convolutions")]
    listed = sum(len(each) for each in lists if isinstance(each, list))
    return (depth if isinstance(depth, int) else 0) + listed + sum(map(_layers, _mappings(config.get("members", []))))


def load_into(module: nn.Module, tensors: Mapping[str, Tensor], path: Path, own: bool = False) -> None:
    """Copy tensors into a module; names and shapes must match exactly, values must be finite.

    own: the tensors are the module's from now on, and are not copied.
    """
    _check_fit(module, tensors, path)
    for name, tensor in tensors.items():
        if tensor.numel() and not all(map(math.isfinite, tensor.aminmax())):  # a NaN is both; faster than all
            raise ValueError(f"{path}: {name} has values that are not finite")
    given = {name: _aligned(each) for name, each in tensors.items()} if own else dict(tensors)
    try:
        module.load_state_dict(given, assign=own)
    except ValueError as error:  # a layer refuses its own values, such as a std of 0
        raise ValueError(f"{path}: {error}") from None


def _aligned(tensor: Tensor) -> Tensor:
    """Return the tensor as torch would place it: kernels are slower on others, such as those within a file."""
    return tensor if tensor.data_ptr() % 64 == 0 else tensor.clone()


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


# --- 16 bits --------------------------------------------------------------------------------------


def matrices(module: nn.Module) -> set[str]:
    """Return the names of the tensors to round: learned ones of two or more dimensions, not biases and buffers."""
    return {name for name, parameter in module.named_parameters() if parameter.dim() >= 2}


def compress(tensors: Mapping[str, Tensor], names: set[str]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors, those of these names rounded to int16 (ties to even), and the steps to multiply them by.

    The step of a tensor is the smallest power of two with max |w| <= 32767 steps, but no less than 2^-100.
    """
    rounded, steps = dict(tensors), {}
    for name in sorted(names):
        tensor = tensors[name].detach()
        if tensor.dtype != torch.float32 or not tensor.isfinite().all():
            raise ValueError(f"{name} cannot be rounded to 16 bits: needs finite float32 weights, got {tensor.dtype}")
        exponent = _exponent(float(tensor.abs().max()) if tensor.numel() else 0.0, name)
        rounded[name] = (tensor.double() * 2.0**-exponent).round().to(torch.int16)
        steps[name] = f"2^{exponent}"
    return rounded, steps


def _exponent(largest: float, name: str) -> int:
    for exponent in _EXPONENTS:
        if largest <= LARGEST * 2.0**exponent:
            return exponent
    raise ValueError(f"{name} cannot be rounded to 16 bits: it has a weight of {largest!r}")


def expand(tensors: Mapping[str, Tensor], steps: Any, module: nn.Module, path: Path) -> dict[str, Tensor]:
    """Convert tensors of `compress` to float32 exactly; raise ValueError for values it cannot have written."""
    if not isinstance(steps, dict):
        raise ValueError(f"{path}: its steps must be a JSON object, got {str(steps)[:60]!r}")
    expanded, allowed = dict(tensors), matrices(module)
    for name, step in steps.items():
        if name not in allowed or name not in tensors:
            raise ValueError(f"{path}: has a step for {name!r}, which is not a matrix of its network")
        match = _STEP.fullmatch(step) if isinstance(step, str) else None
        if match is None or int(match[1]) not in _EXPONENTS:
            raise ValueError(f"{path}: {name} has the step {str(step)[:60]!r}; expected 2^-100 to 2^100")
        if tensors[name].dtype != torch.int16:
            raise ValueError(f"{path}: {name} has a step, but is {tensors[name].dtype}; expected torch.int16")
        expanded[name] = tensors[name].float().mul_(2.0 ** int(match[1]))
    return expanded
