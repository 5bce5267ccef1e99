"""The losses, as formulas of logits z (B, M) and labels y (B,), and as classes that recipes choose by name.

Recipes give thresholds and radii in pixels. A network is L = 1/std-Lipschitz in pixels, so the classes multiply them by
L before they meet logits or features. `linfdist.recipes.losses` declares what recipes need to know about a loss.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..bounds.head import worst_margins
from ..models import PixelNet
from ..nn import Box, Head
from ..recipes import Recipe
from .schedule import State

if TYPE_CHECKING:
    from .teachers import Teachers


def shortfalls(z: Tensor, y: Tensor, threshold: float) -> Tensor:
    """Return m_j = z_j - z_y + t, with m_y = 0: how far each class is from trailing by the threshold. (B, M)"""
    m = z - z.gather(1, y[:, None]) + threshold
    return m.scatter(1, y[:, None], 0.0)


def margins(z: Tensor, y: Tensor) -> Tensor:
    """Return the margin of the label over the best other class; negative if the image is misclassified. (B,)"""
    others = z.scatter(1, y[:, None], -math.inf)
    return z.gather(1, y[:, None])[:, 0] - others.amax(1)


def hinge_loss(z: Tensor, y: Tensor, threshold: float, mean_weight: float = 0.25) -> Tensor:
    """Return the multi-class hinge loss: (1 - a) max_j [m_j]₊ + a mean_j [m_j]₊, averaged over the batch."""
    m = shortfalls(z, y, threshold).clamp(min=0)
    per_sample = (1 - mean_weight) * m.amax(1)
    if mean_weight > 0:
        per_sample = per_sample + mean_weight * m.mean(1)
    return per_sample.mean()


def clipped_hinge_loss(z: Tensor, y: Tensor, threshold: float) -> Tensor:
    """Return the batch mean of max_j clip(m_j / t, 0, 1) (Zhang et al., ICLR 2022).

    A misclassified image counts 1, however far off it is.
    """
    return (shortfalls(z, y, threshold).amax(1) / threshold).clamp(0, 1).mean()


def ibp_loss(head: Head, features: Tensor, z: Tensor, y: Tensor, eps: float, kappa: float) -> Tensor:
    """Return κ · natural cross-entropy + (1 - κ) · cross-entropy of the worst case, as in the paper's formula."""
    worst = F.cross_entropy(worst_margins(head, features, y, eps), y)
    if kappa == 0:
        return worst
    return kappa * F.cross_entropy(z, y) + (1 - kappa) * worst


def ibp_hinge_loss(head: Head, features: Tensor, z: Tensor, y: Tensor, eps: float) -> Tensor:
    """Return the batch mean of max_j clip(w_j / (w_j - d_j), 0, 1): d_j = z_j - z_y, w_j its bound by IBP.

    An image counts 0 if it is certified at eps, 1 if it is misclassified, and in between the missing share of the
    proof. For a head that is the identity this is the clipped hinge with t = 2 eps. The scale of the logits does not
    matter. A misclassified image has no gradient, nor has any image at eps = 0: this is for networks that are trained
    already.
    """
    worst, d = worst_margins(head, features, y, eps), z - z.gather(1, y[:, None])
    # What the ball takes of the margin is 0 at the label, and at eps = 0, where nothing may be divided by it.
    taken = (worst - d).clamp(min=torch.finfo(z.dtype).tiny)
    return (worst / taken).scatter(1, y[:, None], 0.0).clamp(0, 1).amax(1).mean()


def worst_logits(network: PixelNet, x: Tensor, y: Tensor, eps: float) -> Tensor:
    """Return bounds of the logits over all pixels within eps of x and within [0, 1]: lower ones at the label. (B, M)

    So the label has the largest of these bounds only if no image of the box is misclassified. The shifts are those of
    eval mode: there is no mean over a batch of boxes.
    """
    with network.in_eval_mode():
        box = network.features_box(Box((x - eps).clamp(min=0), (x + eps).clamp(max=1)))
        lower, upper = network.readout.forward_box(box)
    return upper.scatter(1, y[:, None], lower.gather(1, y[:, None]))


class Loss(nn.Module, ABC):
    """The loss of one recipe. Its parameters, if any, are trained with the network, but are not part of it.

    teachers: those of the recipe, if it names some.
    """

    teachers: "Teachers | None" = None
    lr_factors: ClassVar[Mapping[str, float]] = {}  # by the name of a parameter of the loss

    def __init__(self, recipe: Recipe, lipschitz: float) -> None:
        super().__init__()
        self.recipe, self.lipschitz = recipe, lipschitz

    @abstractmethod
    def forward(self, network: PixelNet, x: Tensor, y: Tensor, state: State) -> tuple[Tensor, Tensor]:
        """Return the loss of pixels x and labels y at the step's p, and the logits, or bounds, it was taken from."""

    def aim(self, state: State) -> float:
        """Return the margin that the loss aims at: beyond it, the hinge has zero gradient."""
        raise TypeError(f"{type(self).__name__} aims at no margin")


class LogitLoss(Loss):
    """A loss of plain networks: of the logits, or in e4 of their bounds over the box that is to be certified."""

    def __init__(self, recipe: Recipe, lipschitz: float) -> None:
        super().__init__(recipe, lipschitz)
        self.threshold = recipe.number("threshold") * lipschitz
        self.eps = recipe.number("eps")
        self.box_threshold = recipe.number("box_threshold") * lipschitz if recipe.e4 else 0.0

    @abstractmethod
    def of(self, z: Tensor, x: Tensor, y: Tensor, state: State) -> Tensor:
        """Return the loss of logits z (B, M) of pixels x with labels y, which aims at a margin of `aim(state)`."""

    def forward(self, network: PixelNet, x: Tensor, y: Tensor, state: State) -> tuple[Tensor, Tensor]:
        z = worst_logits(network, x, y, self.eps) if state.boxes else network(x, state.p)
        return self.of(z, x, y, state), z

    def aim(self, state: State) -> float:
        return self.box_threshold if state.boxes else self.threshold


class Hinge(LogitLoss):
    """The multi-class hinge loss of plain networks."""

    def __init__(self, recipe: Recipe, lipschitz: float) -> None:
        super().__init__(recipe, lipschitz)
        self.mean_weight = recipe.hinge_mean_weight

    def of(self, z: Tensor, x: Tensor, y: Tensor, state: State) -> Tensor:
        return hinge_loss(z, y, self.aim(state), self.mean_weight)


class ScaledCE(LogitLoss):
    """The clipped hinge plus λ · cross-entropy of s·z, with a learned scale s (Zhang et al., ICLR 2022).

    With teachers, the cross-entropy aims at their probabilities instead of the labels, except in e4, whose logits are
    bounds over boxes.
    """

    lr_factors: ClassVar[Mapping[str, float]] = {"scale": 0.2}

    def __init__(self, recipe: Recipe, lipschitz: float) -> None:
        super().__init__(recipe, lipschitz)
        self.scale = nn.Parameter(torch.tensor(recipe.scale_start))

    def of(self, z: Tensor, x: Tensor, y: Tensor, state: State) -> Tensor:
        targets = y if self.teachers is None or state.boxes else self.teachers(x)
        cross_entropy = F.cross_entropy(self.scale * z, targets)
        return clipped_hinge_loss(z, y, self.aim(state)) + state.loss["ce_weight"] * cross_entropy


class HeadLoss(Loss):
    """A loss of networks that end in a head: of interval bounds through it."""

    @abstractmethod
    def of(self, head: Head, features: Tensor, z: Tensor, y: Tensor, eps: float) -> Tensor:
        """Return the loss of features with logits z and labels y, while each feature moves by ±eps."""

    def forward(self, network: PixelNet, x: Tensor, y: Tensor, state: State) -> tuple[Tensor, Tensor]:
        head = cast(Head, network.readout)
        features = network.features(x, state.p)
        z = head(features)
        return self.of(head, features, z, y, state.loss["eps_train"] * self.lipschitz), z


class IBP(HeadLoss):
    """The cross-entropy of the worst case, and of the logits (Section 6 of the paper)."""

    def __init__(self, recipe: Recipe, lipschitz: float) -> None:
        super().__init__(recipe, lipschitz)
        self.kappa = recipe.number("kappa")

    def of(self, head: Head, features: Tensor, z: Tensor, y: Tensor, eps: float) -> Tensor:
        return ibp_loss(head, features, z, y, eps, self.kappa)


class IBPHinge(HeadLoss):
    """The clipped hinge of the worst case, for heads that start as a plain network."""

    def of(self, head: Head, features: Tensor, z: Tensor, y: Tensor, eps: float) -> Tensor:
        return ibp_hinge_loss(head, features, z, y, eps)


LOSSES: dict[str, type[Loss]] = {  # by the names of recipes
    "hinge": Hinge,
    "ibp": IBP,
    "ibp_hinge": IBPHinge,
    "scaled_ce": ScaledCE,
}
