"""The network together with its loss: what a training step differentiates, and what several processes share."""

from inspect import signature
from typing import cast

from torch import Tensor, nn

from ..data import Info
from ..models import Mean, PixelNet, from_config, load_floats
from ..models.grow import grow
from ..models.loading import MODELS
from ..recipes import Recipe
from .losses import LOSSES, Loss
from .schedule import State


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
        given = grow(load_floats(recipe.start), network.config, samples=samples)
    except (TypeError, ValueError) as error:
        raise ValueError(f"start = {recipe.start!r} cannot become the recipe's network: {error}") from None
    network.load_state_dict(given.state_dict())
    return network


def whole_network(recipe: Recipe, trained: PixelNet) -> PixelNet:
    """Return what a training results in: the network itself, or its mean with the recipe's other networks."""
    if not recipe.mean_with:
        return trained
    try:
        others = [load_floats(each).to(trained.any_tensor.device) for each in recipe.mean_with]
        return Mean([trained, *others])
    except (OSError, TypeError, ValueError) as error:
        raise ValueError(f"mean_with = {recipe.mean_with}: {error}") from None


class Objective(nn.Module):
    """(pixels, labels, state) -> (loss, logits). The loss is a submodule with the recipe's name for it."""

    def __init__(self, recipe: Recipe, network: PixelNet) -> None:
        super().__init__()
        self.network = network
        self.name = recipe.loss
        self.add_module(self.name, LOSSES[self.name](recipe, network.lipschitz))

    @property
    def loss(self) -> Loss:
        """The recipe's loss."""
        return cast(Loss, self.get_submodule(self.name))

    def forward(self, x: Tensor, y: Tensor, state: State) -> tuple[Tensor, Tensor]:
        """Return the loss at the step's p, and the logits it was taken from."""
        return self.loss(self.network, x, y, state)

    def lr_factors(self) -> dict[str, float]:
        """Return what the learning rate is multiplied by, for the parameters where that is not 1."""
        return {f"{self.name}.{name}": factor for name, factor in self.loss.lr_factors.items()}

    def dist_weights(self) -> set[str]:
        """Return the names of the weights of layers that hold distances: those that ℓp weight decay is for."""
        return {f"{name}.weight" for name, module in self.named_modules() if getattr(module, "holds_distances", False)}
