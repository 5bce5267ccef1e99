"""Networks of one's own layers: composed, described as data, and made from stacks and torch's `Sequential`."""

import os
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from ..data.samples import as_samples, check_plain, read
from ..errors import described
from ..files import excerpt
from ..nn import (
    Box,
    CenterCrop,
    Clip,
    Contract,
    DistConv2d,
    DistLinear,
    Flatten,
    Handlers,
    Head,
    LipschitzModule,
    Logits,
    MeanPool,
    MeanShift,
    MirrorPairs,
    NearestClass,
    Normalize,
    Readout,
    Stack,
    View,
)
from ..nn.base import check_as_made
from .base import ABOVE, Network, PixelNet, construct

MOST_LAYERS = 1000  # of a file
MOST_ELEMENTS = 2**28  # numbers of the largest tensor for one image: a gigabyte in float32


class Composed(PixelNet):
    """A body and a readout: for networks without a class of their own.

    body: layers from pixels (B, C, H, W) to features (B, F); readout: from features to logits; shape: (C, H, W) of the
    images. If the first layer is a `CenterCrop`, images of the size after it are taken too.

    Its configuration describes every layer by its class and arguments, see `arguments_of`. If one of them has no such
    description, the configuration is empty, and the network cannot be saved.
    """

    def __init__(self, body: Stack, readout: Readout, shape: Sequence[int]) -> None:
        if len(shape) != 3 or not all(type(side) is int and side >= 1 for side in shape):
            raise ValueError(f"shape must be (channels, height, width), each at least 1, got {excerpt(shape)}")
        first = next(iter(body), None)
        super().__init__((shape[0], shape[1], shape[2]), first.size if type(first) is CenterCrop else None)
        self.body, self.last = body, readout
        self.training = body.training

    @property
    def readout(self) -> Readout:
        return self.last

    @property
    def config(self) -> dict[str, Any]:  # type: ignore[override]
        """Its class, and the descriptions of its body and readout; empty if one of them has none."""
        exact = type(self) is Composed and type(self.body) is Stack
        if not exact or not all(part in arguments_of for part in (*self.body, self.last)):
            return {}
        body = [_described(layer) for layer in self.body]
        return {"class": "Composed", "body": body, "readout": _described(self.last), "shape": list(self.shape)}

    def check_described(self) -> None:
        """Raise TypeError, naming the first layer or readout that cannot be described, or ValueError if one is changed.

        Their tensors must have the shapes with which they were made.
        """
        for name, part in [*((f"body.layers.{k}", layer) for k, layer in enumerate(self.body)), ("last", self.last)]:
            try:
                arguments_of(part)
            except TypeError as error:
                raise TypeError(f"{name}: {error}") from None
            part.check_shapes(name)

    def check_composition(self) -> None:
        """Raise unless images pass through all layers and give as many logits as there are classes.

        For a network without memory for its weights (`torch.device("meta")`), only shapes are passed.
        """
        if self.elements() > MOST_ELEMENTS:
            raise ValueError(f"a layer has more than {MOST_ELEMENTS:,} outputs or inputs for one image")
        images = torch.empty(1, *self.shape, dtype=self.any_tensor.dtype, device=self.device)
        with torch.no_grad():
            logits = tuple(self(images).shape)
        if logits != (1, self.classes) or self.classes < 1:
            raise ValueError(f"the readout gives logits of shape {logits} for {self.classes} classes")


# --- layers as data -------------------------------------------------------------------------------

arguments_of: Handlers[[], dict[str, Any]] = Handlers("linfdist.models.composed.arguments_of", "cannot be saved")
"""arguments_of(layer) are the arguments of the constructor that makes a layer, or a readout, of the same shape again.

They are plain JSON. Its parameters and buffers are saved beside them, and nothing else is: what a layer computes must
follow from both. Only classes that are registered here are made from what a file says.
"""


@arguments_of.register(Flatten, MirrorPairs)
def _(layer: Flatten | MirrorPairs) -> dict[str, Any]:
    return {}


@arguments_of.register(CenterCrop)
def _(layer: CenterCrop) -> dict[str, Any]:
    return {"size": layer.size}


@arguments_of.register(View)
def _(layer: View) -> dict[str, Any]:
    return {"name": layer.view}


@arguments_of.register(MeanPool)
def _(layer: MeanPool) -> dict[str, Any]:
    return {"sizes": list(layer.sizes)}


@arguments_of.register(Clip)
def _(layer: Clip) -> dict[str, Any]:
    return {"low": layer.low.item(), "high": layer.high.item()}


@arguments_of.register(Normalize)
def _(layer: Normalize) -> dict[str, Any]:
    return {"mean": layer.mean.flatten().tolist(), "std": layer.std.item()}


@arguments_of.register(MeanShift)
def _(layer: MeanShift) -> dict[str, Any]:
    return {"num_features": layer.num_features}


@arguments_of.register(DistLinear)
def _(layer: DistLinear) -> dict[str, Any]:
    sizes = {"in_features": layer.in_features, "out_features": layer.out_features}
    return {**sizes, "bias": layer.bias is not None}


@arguments_of.register(DistConv2d)
def _(layer: DistConv2d) -> dict[str, Any]:
    sizes = {"in_channels": layer.in_channels, "out_channels": layer.out_channels}
    kernel, geometry = list(layer.weight.shape[2:]), layer.geometry._asdict()
    lists = {name: list(each) if isinstance(each, tuple) else each for name, each in geometry.items()}
    return {**sizes, "kernel_size": kernel, **lists, "bias": layer.bias is not None}


@arguments_of.register(NearestClass)
def _(readout: NearestClass) -> dict[str, Any]:
    return {"in_features": readout.in_features, "classes": readout.classes, "per_class": readout.per_class}


@arguments_of.register(Head)
def _(readout: Head) -> dict[str, Any]:
    hidden = readout.hidden
    return {"in_features": hidden.in_features, "hidden": hidden.out_features, "classes": readout.classes}


@arguments_of.register(Logits)
def _(readout: Logits) -> dict[str, Any]:
    return {"classes": readout.classes}


def _described(part: Contract) -> dict[str, Any]:
    return {"class": _name(type(part)), **arguments_of(part)}


def _name(cls: type) -> str:
    """Return the name of a class in files: without the package for `nn`, in full for foreign classes."""
    own = {"linfdist.nn": cls.__name__, "linfdist.baselines": f"baselines.{cls.__name__}"}
    package = ".".join(cls.__module__.split(".")[:2])
    return own.get(package, f"{cls.__module__}.{cls.__qualname__}")


def body_of(configs: object) -> Stack:
    """Make the layers that a configuration describes, with new weights."""
    if not isinstance(configs, list) or len(configs) > MOST_LAYERS:
        raise ValueError(f"body must be a list of at most {MOST_LAYERS} layers, got {excerpt(configs)}")
    return Stack(*(construct(each, "layer", lambda: _registered(LipschitzModule)) for each in configs))


def readout_of(config: object) -> Readout:
    """Make the readout that a configuration describes, with new weights."""
    made: Readout = construct(config, "readout", lambda: _registered(Readout))
    return made


def _registered(kind: type) -> dict[str, type[Any]]:
    return {_name(each): each for each in arguments_of.classes if issubclass(each, kind)}


# --- networks of what is no network yet -----------------------------------------------------------


def as_network(model: object, shape: Sequence[int]) -> Network:
    """Turn what can be certified into a network for images of this shape (C, H, W).

    A network is returned unchanged. A `Stack` or torch's own `Sequential` becomes a network of the same layers: the
    last one is the readout, or its outputs are the logits. Raises TypeError that names the first layer whose Lipschitz
    constant and rounding are unknown.
    """
    if isinstance(model, Network):
        return model
    model = _layered(model)
    if len(shape) != 3:
        raise ValueError(
            f"a {type(model).__name__} does not know the shape of its images, so it needs several, (B, C, H, W); got "
            f"images of shape {tuple(shape)}"
        )
    readout, layers = None, []
    for place, part in _layers(type(model).__name__, model):
        if readout is not None:
            raise TypeError(
                f"{place} comes after a {type(readout).__name__}, a readout: only the last layer can be one"
            )
        if isinstance(part, Readout):
            readout = part
        else:
            layers.append(part)
    body = Stack(*layers)
    body.training = body.layers.training = model.training
    if readout is None:
        outputs = body.output_shape(tuple(shape))
        if len(outputs) != 1:
            raise ValueError(f"the layers give outputs of shape {outputs} per image: end with logits (classes,)")
        readout = Logits(outputs[0]).train(model.training)
    return Composed(body, readout, shape)


def _layered(model: object) -> nn.Module:
    """Return layers as they are; raise TypeError that names the type of anything else."""
    if isinstance(model, str | os.PathLike):
        raise TypeError(f"{os.fspath(model)!r} is the name of a network: load it first, with linfdist.load")
    if not isinstance(model, nn.Module):
        raise TypeError(f"the first argument must be a network, as linfdist.load returns one; got {described(model)}")
    if not isinstance(model, LipschitzModule) and type(model) is not nn.Sequential:
        raise TypeError(
            f"a {type(model).__name__} cannot be certified, because it declares no Lipschitz constant: take a network "
            "of linfdist.models, or put layers of linfdist.nn into a linfdist.nn.Stack or a torch.nn.Sequential"
        )
    return model


def opened(model: object, data: Any) -> tuple[Network, Any]:
    """Return a network of layers that do not know the shape of their images, and these as `taken` takes them."""
    model = _layered(model)
    given, labels = read(data)
    if isinstance(data, Tensor):
        check_plain(data, "x")
        return as_network(model, given.shape[1:]), data
    return as_network(model, as_samples(given, "x").shape[1:]), (given, labels)


def _layers(name: str, module: object) -> Iterator[tuple[str, LipschitzModule | Readout]]:
    """Yield the layers of containers, with their places; a layer that is used twice comes twice.

    The network leaves containers out, so only their layers may matter: a container must be of the exact class, and
    unchanged.
    """
    if type(module) is nn.Sequential:
        check_as_made(name, module)
        for own, child in module._modules.items():  # `named_children` has every module once
            yield from _layers(f"{name}.{own}", child)
    elif type(module) is Stack:
        check_as_made(name, module)
        layers = module.layers
        if type(layers) is not nn.ModuleList:
            _refuse(f"{name}.layers", layers)
        check_as_made(f"{name}.layers", layers)
        for own, child in layers._modules.items():
            yield f"{name}.layers.{own}", _covered(f"{name}.layers.{own}", child)
    else:
        yield name, _covered(name, _twin(name, module))


def _covered(name: str, module: object) -> LipschitzModule | Readout:
    return module if isinstance(module, LipschitzModule | Readout) else _refuse(name, module)


def _refuse(name: str, module: object) -> NoReturn:
    raise TypeError(
        f"{name} is a {type(module).__name__}, whose Lipschitz constant and rounding are unknown: nothing can "
        "be certified with it. Layers of linfdist.nn and linfdist.baselines are covered; of torch.nn, in a "
        "Sequential, ReLU() and Flatten() are"
    )


TWINS: dict[type, Callable[[Any], LipschitzModule | None]] = {  # by the exact class of torch
    nn.Flatten: lambda layer: Flatten() if (layer.start_dim, layer.end_dim) == (1, -1) else None,
    nn.ReLU: lambda layer: import_module(ABOVE["baselines"]).ReLU(),
}
"""The layers that compute what torch's own do, with declarations; None for one that has no such layer."""


def _twin(name: str, module: object) -> object:
    """Return our counterpart of one of torch's own layers, in its mode; return other layers unchanged."""
    twin = TWINS[type(module)](module) if type(module) in TWINS else None
    if twin is None or not isinstance(module, nn.Module):
        return module
    check_as_made(name, module)
    return twin.train(module.training)


# --- cached lists ---------------------------------------------------------------------------------


def _itself(module: Contract, box: Box) -> Contract:
    return module


with_cached_lists: Handlers[[Box], Any] = Handlers(
    "linfdist.models.composed.with_cached_lists", "has no cached lists", _itself
)
"""with_cached_lists(layer, box) is a layer, or a readout, with the bits of this one at p = inf for inputs of the box
(1, *shape), faster for a few of them; the default is the layer itself.

It may keep what depends on the tensors, which must not change any more, and has no gradients.
"""


@with_cached_lists.register(DistLinear, NearestClass)
def _(layer: DistLinear | NearestClass, box: Box) -> Contract:
    return layer.with_lists(box)


def cache_lists(network: PixelNet) -> PixelNet:
    """Return a network that gives the bits of this one for images of [0, 1], faster for a few images.

    This one must be in eval mode. Both have the same tensors, which must not change any more: see
    `with_cached_lists`.
    """
    box, layers = network.all_images, []
    for layer in network.body:
        layers.append(with_cached_lists(layer, box))
        box = layer.forward_box(box)
    found = Composed(Stack(*layers), with_cached_lists(network.readout, box), network.shape)
    found.size = network.size
    return found.eval()
