"""The network together with its loss: what a training step differentiates, and what several processes share."""

import copy
from collections.abc import Iterable, Sequence
from inspect import signature
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn

from ..data import Info
from ..models import Mean, PixelNet, as_network, from_config, load_floats
from ..models.grow import grow
from ..models.loading import MODELS
from ..nn import Head, Readout
from ..recipes import Recipe
from ..recipes.losses import DECLARED
from ..recipes.networks import Ending
from .losses import LOSSES, Loss
from .schedule import State

if TYPE_CHECKING:
    from .teachers import Teachers


def build_network(recipe: Recipe, info: Info) -> PixelNet:
    """Return the recipe's network for such images, with fresh weights.

    Every key of the recipe that the network's class has an argument for is passed on to it.
    """
    network = MODELS[recipe.model]
    keys = signature(network).parameters.keys() & Recipe.model_fields.keys()
    given = {"shape": info.shape, "classes": info.num_classes, "mean": info.mean, "std": info.std}
    return from_config({"class": network.__name__, **given, **{key: getattr(recipe, key) for key in keys}})


def start_network(recipe: Recipe, info: Info, samples: tuple[Tensor, Tensor]) -> PixelNet:
    """Return the network that training begins with: a fresh one, or the recipe's `start`, grown to its shape.

    samples: pixels in [0, 1] and labels, some of those to train on.
    """
    network = build_network(recipe, info)
    if recipe.start is None:
        return network
    try:
        before = load_floats(recipe.start)
        given = grow(before, network.config, samples=samples)
    except (TypeError, ValueError) as error:
        raise ValueError(f"start = {recipe.start!r} cannot become the recipe's network: {error}") from None
    network.load_state_dict(given.state_dict())
    network._pruned = before.pruned
    return network


def own_network(recipe: Recipe, model: object, info: Info) -> PixelNet:
    """Return a copy of a network that is not the recipe's, to be trained as the recipe says.

    model: a network, or layers that `as_network` makes one of. Raises TypeError or ValueError if such images, or the
    recipe's loss, do not fit it.
    """
    network = as_network(model, info.shape)
    if not isinstance(network, PixelNet):
        raise TypeError(f"network: a {type(network).__name__} cannot be trained; give one in floating point")
    shape, crop, wrong = tuple(network.shape), recipe.crop, None
    if shape != info.shape:
        wrong = f"takes images {shape}, but these are {info.shape}"
    elif network.classes != info.num_classes:
        wrong = f"has {network.classes} classes, but there are {info.num_classes}"
    elif network.any_tensor.dtype != torch.float32:
        wrong = f"is in {network.any_tensor.dtype}, and training in torch.float32: call .float() first"
    elif crop is not None and network.size != (crop, crop):
        wrong = f"takes no images of the recipe's crop = {crop}: put a CenterCrop({crop}) in front, or set crop to none"
    elif recipe.box_clip is not None and "clip" not in network.config:
        wrong = "has no place for the recipe's box_clip: put a Clip among its layers, and set box_clip to none"
    if wrong:
        raise ValueError(f"network: the {type(network).__name__} {wrong}")
    _check_ending(recipe, network.readout)
    return copy.deepcopy(network)


def _check_ending(recipe: Recipe, readout: Readout) -> None:
    ending: Ending | None = "plain" if readout.lipschitz is not None else "head" if type(readout) is Head else None
    if ending != DECLARED[recipe.loss].ending:
        fit = [name for name, loss in DECLARED.items() if loss.ending == ending]
        needed = {"plain": "a readout with a Lipschitz constant, such as NearestClass", "head": "a Head"}
        raise ValueError(
            f"network: loss = {recipe.loss!r} needs {needed[DECLARED[recipe.loss].ending]}, and this one ends in a "
            f"{type(readout).__name__}; take a recipe with {' or '.join(fit) or 'another loss, and another readout'}"
        )
    if recipe.e4 and type(readout).forward_box is Readout.forward_box:
        raise ValueError(
            f"network: e4 = {recipe.e4:g} trains on boxes, and a {type(readout).__name__} has no bounds: set it to 0"
        )


def keys_of_networks() -> set[str]:
    """Return the keys of recipes that describe the network itself, and so mean nothing for another one."""
    arguments: Iterable[str] = (key for network in MODELS.values() for key in signature(network).parameters)
    return {"model", "start", *arguments} & Recipe.model_fields.keys() - {"crop"}  # images are cropped in training too


def whole_network(recipe: Recipe, trained: PixelNet) -> PixelNet:
    """Return the result of a training: the network itself, or its mean with the recipe's other networks."""
    return load_mean("mean_with", recipe.mean_with, trained) if recipe.mean_with else trained


def load_mean(key: str, places: Sequence[str], *first: PixelNet) -> PixelNet:
    """Return the mean of these networks and of those that a key of a recipe names; one alone is returned as it is."""
    try:
        networks = [*first, *map(load_floats, places)]
        device = networks[0].any_tensor.device
        return Mean([each.to(device) for each in networks]) if len(networks) > 1 else networks[0]
    except (OSError, TypeError, ValueError) as error:
        raise ValueError(f"{key} = {places}: {error}") from None


class Objective(nn.Module):
    """(pixels, labels, state) -> (loss, logits). The loss is a submodule with the recipe's name for it."""

    def __init__(self, recipe: Recipe, network: PixelNet, teachers: "Teachers | None" = None) -> None:
        super().__init__()
        self.network = network
        self.name = recipe.loss
        lipschitz = network.lipschitz * (network.readout.lipschitz or 1.0)  # of the logits, or of a head's features
        self.add_module(self.name, LOSSES[self.name](recipe, lipschitz))
        self.loss.teachers = teachers

    @property
    def loss(self) -> Loss:
        """The recipe's loss."""
        return cast(Loss, self.get_submodule(self.name))

    def forward(self, x: Tensor, y: Tensor, state: State) -> tuple[Tensor, Tensor]:
        """Return the loss at the step's p, and the logits it was taken from."""
        return self.loss(self.network, x, y, state)

    def lr_factors(self) -> dict[str, float]:
        """Return the factors of the learning rate, by parameter, that are not 1."""
        return {f"{self.name}.{name}": factor for name, factor in self.loss.lr_factors.items()}

    def dist_weights(self) -> set[str]:
        """Return the names of the weights of dist layers, which get ℓp weight decay."""
        return {f"{name}.weight" for name, module in self.named_modules() if getattr(module, "holds_distances", False)}
