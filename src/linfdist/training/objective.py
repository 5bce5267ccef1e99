"""The network together with its loss: what a training step differentiates, and what several processes share."""

from torch import Tensor, nn

from ..data import Info
from ..models import PixelNet, from_config
from ..models.grow import grow
from ..nn import DistConv2d, DistLinear, Head
from ..recipes import Recipe
from ..zoo import load
from .losses import ScaledCrossEntropy, hinge_loss, ibp_loss
from .schedule import State

CLASSES = {"dist_net": "DistNet", "dist_net_mlp": "DistNetMLP", "conv_dist_net_mlp": "ConvDistNetMLP"}


def build_network(recipe: Recipe, info: Info) -> PixelNet:
    """The recipe's network for images like these, with fresh weights."""
    config = {
        "class": CLASSES[recipe.model], "shape": info.shape, "classes": info.num_classes,
        "mean": info.mean, "std": info.std, "crop": recipe.crop, "width": recipe.width, "depth": recipe.depth,
        "identity_init": recipe.identity_init, "mean_shift": recipe.mean_shift,
    }  # fmt: skip
    return from_config(config if recipe.model == "dist_net" else config | {"head": recipe.head})


def start_network(recipe: Recipe, info: Info) -> PixelNet:
    """The network that training begins with: fresh, or the recipe's `start`, grown to the recipe's shape."""
    network = build_network(recipe, info)
    if recipe.start is None:
        return network
    try:
        given = grow(load(recipe.start), network.config, recipe.start_noise)
    except (TypeError, ValueError) as error:
        raise ValueError(f"start = {recipe.start!r} cannot become the recipe's network: {error}") from None
    network.load_state_dict(given.state_dict())
    return network


class Objective(nn.Module):
    """(pixels, labels, state) -> (loss, logits). Thresholds and ε meet logits and features multiplied by L = 1/std."""

    def __init__(self, recipe: Recipe, network: PixelNet) -> None:
        super().__init__()
        self.recipe, self.network = recipe, network
        self.scaled_ce = ScaledCrossEntropy() if recipe.loss == "scaled_ce" else None
        self.lipschitz = network.lipschitz

    def forward(self, x: Tensor, y: Tensor, state: State) -> tuple[Tensor, Tensor]:
        """The loss at the step's p, and the logits it was taken from."""
        recipe, lipschitz = self.recipe, self.lipschitz
        if recipe.loss == "ibp":
            assert isinstance(self.network.head, Head)  # for the type checker: the schema sees to it
            features = self.network.features(x, state.p)
            z = self.network.head(features)
            return ibp_loss(self.network.head, features, z, y, state.eps_train * lipschitz, recipe.kappa or 0.0), z
        z = self.network(x, state.p)
        threshold = float(recipe.fraction("threshold")) * lipschitz
        if self.scaled_ce is not None:
            return self.scaled_ce(z, y, threshold, state.ce_weight), z
        return hinge_loss(z, y, threshold, recipe.hinge_mean_weight), z

    def dist_weights(self) -> set[str]:
        """Names of the weights of dist layers: those that ℓp weight decay is for."""
        return {
            f"{name}.weight" for name, module in self.named_modules() if isinstance(module, DistLinear | DistConv2d)
        }
