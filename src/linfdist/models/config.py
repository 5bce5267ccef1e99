"""Networks from their configuration."""

from collections.abc import Mapping
from inspect import signature
from typing import Any

from .base import PixelNet
from .dist_net import ConvDistNetMLP, DistNet, DistNetMLP
from .mean import Mean

MODELS: dict[str, type[PixelNet]] = {  # by the names that recipes use
    "dist_net": DistNet,
    "dist_net_mlp": DistNetMLP,
    "conv_dist_net_mlp": ConvDistNetMLP,
}
CLASSES: dict[str, type[PixelNet]] = {  # by the names that configurations use
    **{network.__name__: network for network in MODELS.values()},
    "Mean": Mean,
}


def from_config(config: Mapping[str, Any]) -> PixelNet:
    """The network that `config` (see `PixelNet`) describes, with new weights, in eval mode: ready for saved weights.

    ValueError names the keys that are unknown or missing. A network that is made of others has their configurations in
    its own, as `members`.
    """
    arguments = dict(config)
    name = arguments.pop("class", None)
    if name not in CLASSES:
        if _of_baselines(name) and not any(map(_of_baselines, CLASSES)):
            raise ValueError(
                f"networks of class {name!r} are those of linfdist.baselines, which is not imported: load it with "
                "linfdist.load, which knows them, or import linfdist.baselines first"
            )
        raise ValueError(f"no network of class {name!r}: the classes are {', '.join(CLASSES)}")
    parameters = signature(CLASSES[name]).parameters
    unknown = [key for key in arguments if key not in parameters]
    missing = [key for key, each in parameters.items() if each.default is each.empty and key not in arguments]
    if unknown or missing:
        wrong = [f"unknown {key!r}" for key in unknown] + [f"{key!r} is missing" for key in missing]
        raise ValueError(f"configuration of a {name}: {', '.join(wrong)}; the keys are {', '.join(parameters)}")
    if "members" in arguments:
        arguments["members"] = [from_config(each) for each in members_of(config)]
    return CLASSES[name](**arguments).eval()


def _of_baselines(name: object) -> bool:
    """Whether a class is one that `linfdist.baselines` enters when it is imported, which nothing here does."""
    return isinstance(name, str) and name.startswith("baselines.")


def members_of(config: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The configurations of the networks that a network is made of: none for most. ValueError if these are not some."""
    members = config.get("members", [])
    if not isinstance(members, list) or not all(isinstance(each, Mapping) for each in members):
        raise ValueError(f"members must be a list of configurations of networks, got {str(members)[:60]!r}")
    return members
