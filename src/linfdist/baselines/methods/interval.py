"""Training on intervals (IBP), and methods that refine or partly replace them."""

import math
from abc import abstractmethod
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from ...bounds.forms import pull_back
from ...bounds.training import Bounds
from ...bounds.zonotope import forward_zonotope
from ...models import PixelNet
from ..activations import ReLU
from ..affine import Affine
from ..plan import Stage
from .base import Settings, Space, Span, TrainingMethod, at_half_width
from .plain import Adversarial

TINY = 1e-12  # of what is divided by: a layer may be off for a whole batch
_LR = Span(3e-4, 5e-3, first=1e-3)
_REACH = Span(0.6, 1.5, first=1.0, log=False)


class WorstCase(TrainingMethod):
    """κ · cross-entropy + (1 − κ) · a bound of it in the worst case; ε grows, κ falls."""

    settings: ClassVar[Settings] = (
        {"lr": 1e-3, "reach": 1.1},
        {"lr": 1e-3, "reach": 4 / 3},  # 0.4 for 0.3
        {"lr": 2e-3, "reach": 1.1, "kappa": (1.0, 0.0)},
    )
    space: ClassVar[Space] = {
        "reach": replace(_REACH, first=1.1),
        "kappa": Span(0.0, 0.9, first=0.5, log=False, form=lambda end: (1.0, end)),
        "lr": _LR,
    }
    readout_needs = pull_back

    def __call__(self, network: PixelNet, x: Tensor, y: Tensor, stage: Stage) -> tuple[Tensor, Tensor]:
        z = network(x)
        natural = cross_entropy(z, y)
        if stage.kappa == 1.0:
            return natural, z
        return stage.kappa * natural + (1 - stage.kappa) * self.worst(network, x, y, stage), z

    @abstractmethod
    def worst(self, network: PixelNet, x: Tensor, y: Tensor, stage: Stage) -> Tensor:
        """Bound the cross-entropy over the balls from above, averaged over the batch."""


class IBP(WorstCase):
    """The worst case is the one that intervals allow for, and `penalty` weighs what makes them loose while ε grows.

    The penalties and the small weights that networks start with are those of Shi et al. (2021), who found that training
    then needs far fewer epochs. penalty = 0 is the loss of Gowal et al. (2018), and weights start as in torch's layers.
    """

    name = "ibp"
    title = "IBP"
    source = "Gowal et al., 2018; Shi et al., 2021"
    settings = (
        {"lr": 1e-3, "kappa": (0.0, 0.0)},
        {"lr": 1e-3, "reach": 1.1, "kappa": (0.0, 0.0)},
        {"lr": 1e-3, "reach": 1.1, "kappa": (1.0, 0.5)},
    )
    space: ClassVar[Space] = {
        "reach": _REACH,
        "kappa": Span(0.0, 0.9, first=0.0, log=False, form=lambda weight: (weight, weight)),
        "lr": _LR,
    }

    def __init__(self, penalty: float = 0.5) -> None:
        if not 0 <= penalty < math.inf:
            raise ValueError(f"penalty = {penalty!r}: must be 0 or more, the weight of loose and unbalanced boxes")
        self.penalty = penalty

    def worst(self, network: PixelNet, x: Tensor, y: Tensor, stage: Stage) -> Tensor:
        return self.over(Bounds(network, x, stage.eps), y, stage)

    def over(self, bounds: Bounds, y: Tensor, stage: Stage) -> Tensor:
        """Bound the cross-entropy over these balls by intervals; before the end of the ramp, add the penalties."""
        worst, weight = cross_entropy(-bounds.interval_margins(y), y), self.penalty * (1 - stage.share)
        return worst + weight * looseness(bounds) if weight and stage.eps else worst

    def network(self, *arguments: Any, **named: Any) -> PixelNet:
        """Create a network whose boxes, at the start, grow no more from layer to layer than their middles do."""
        network = super().network(*arguments, **named)
        for layer in network.modules() if self.penalty else ():
            if isinstance(layer, Affine):
                nn.init.normal_(layer.weight, std=math.sqrt(2 * math.pi) / layer.inputs)
        return network


def looseness(bounds: Bounds) -> Tensor:
    """Penalise layers of ReLUs whose boxes have grown, or which are almost all on or all off (Shi et al., 2021).

    Three ratios per layer should be at least 1/2; a ratio of 0 costs 1. The first is the mean width of the boxes that
    enter the first affine layer, divided by that of the boxes that enter these ReLUs. The other two compare neurons
    that are on in their whole box with those that are off: the smaller of two sums divided by the larger one, of the
    boxes' middles, and of the middles' squared distances from their mean.
    """
    layers = list(zip(bounds.network.body, bounds.boxes, strict=False))
    inner = [box for layer, box in layers if isinstance(layer, ReLU)]
    cost = bounds.boxes[0].lower.new_zeros(())
    first = next(box.upper - box.lower for layer, box in layers if isinstance(layer, Affine))
    for lower, upper in inner:
        middle = ((lower + upper) / 2).flatten()
        on, off = ((lower > 0).to(middle).flatten(), (upper < 0).to(middle).flatten())
        ratios = [first.mean() / (upper - lower).mean().clamp(min=TINY)]
        for value in (middle, (middle - middle.mean()).square()):
            sums = torch.stack([value @ on, value @ off]).abs()
            ratios.append(sums.amin() / sums.amax().clamp(min=TINY))
        cost = cost + (1 - 2 * torch.stack(ratios)).relu().sum() / len(inner)
    return cost


class SABR(IBP):
    """IBP over the box of radius λε around an image that PGD has found within (1 − λ) ε, so that it is in the ball.

    `share` is λ: 1 is IBP, and near 0 it is adversarial training. The box leaves out most of the ball, so the loss does
    not bound the worst case: networks become easier to train, and are certified by linear bounds, or not at all.
    """

    name = "sabr"
    title = "SABR"
    source = "Müller et al., 2023"
    settings = (
        {"lr": 1e-3, "share": 0.6, "steps": 1, "kappa": (0.0, 0.0)},
        {"lr": 1e-3, "share": 0.4, "steps": 1, "kappa": (0.0, 0.0)},
        {"lr": 1e-3, "share": 0.6, "kappa": (0.0, 0.0)},
    )
    space: ClassVar[Space] = {"share": Span(0.1, 1.0, first=0.6), "reach": _REACH, "lr": _LR}

    def __init__(self, share: float = 0.4, steps: int = 7, penalty: float = 0.5) -> None:
        super().__init__(penalty)
        if not 0 < share <= 1:
            raise ValueError(f"share = {share!r}: must be more than 0 and at most 1, the part of eps that boxes have")
        self.share, self.attack = share, Adversarial(steps)

    def worst(self, network: PixelNet, x: Tensor, y: Tensor, stage: Stage) -> Tensor:
        centre = self.centre(network, x, y, stage)
        return self.over(Bounds(network, centre, self.share * stage.eps), y, stage)

    def centre(self, network: PixelNet, x: Tensor, y: Tensor, stage: Stage) -> Tensor:
        """Find the middle of each box by PGD."""
        reach = (1 - self.share) * stage.eps
        return self.attack.attacked(network, x, y, replace(stage, eps=reach)) if reach > 0 else x


class MTLIBP(IBP):
    """(1 − α) · cross-entropy of the images that PGD finds + α · that of the worst case by intervals.

    `share` is α: 1 is IBP, and 0 is adversarial training.
    """

    name = "mtl-ibp"
    title = "MTL-IBP"
    source = "De Palma et al., 2024"
    settings = (
        {"lr": 1e-3, "share": 0.5, "steps": 1, "kappa": (0.0, 0.0)},
        {"lr": 1e-3, "share": 0.2, "steps": 1, "kappa": (0.0, 0.0)},
        {"lr": 1e-3, "share": 0.5, "kappa": (0.0, 0.0)},
    )
    space: ClassVar[Space] = {"share": Span(0.02, 1.0, first=0.5), "reach": _REACH, "lr": _LR}

    def __init__(self, share: float = 0.5, steps: int = 7, penalty: float = 0.5) -> None:
        super().__init__(penalty)
        if not 0 <= share <= 1:
            raise ValueError(f"share = {share!r}: must be between 0 and 1, the weight of the interval loss")
        self.share, self.attack = share, Adversarial(steps)

    def worst(self, network: PixelNet, x: Tensor, y: Tensor, stage: Stage) -> Tensor:
        attacked = self.attack.attacked(network, x, y, stage) if stage.eps > 0 else x
        return (1 - self.share) * cross_entropy(network(attacked), y) + self.share * super().worst(network, x, y, stage)


class CrownIBP(WorstCase):
    """IBP whose margins are β · linear bounds + (1 − β) · intervals; β falls while ε grows."""

    name = "crown-ibp"
    title = "CROWN-IBP"
    source = "Zhang et al., 2020"
    layers_need = pull_back

    def worst(self, network: PixelNet, x: Tensor, y: Tensor, stage: Stage) -> Tensor:
        bounds = Bounds(network, x, stage.eps)
        if stage.beta == 0.0:
            return cross_entropy(-bounds.interval_margins(y), y)
        margins = stage.beta * bounds.linear_margins(y)
        if stage.beta < 1.0:
            margins = margins + (1 - stage.beta) * bounds.interval_margins(y)
        return cross_entropy(-margins, y)


class FusedCrownIBP(WorstCase):
    """CROWN-IBP with loss fusion (Xu et al., 2020): one linear form for each image, instead of one for each class.

    The loss is log Σ exp(z[j] − z[y]). Over the intervals [l, u] of these differences, exp lies below its chords, so
    the sum is at most one linear form of the logits, which is pulled back to the pixels.
    """

    name = "crown-ibp-fused"
    title = "CROWN-IBP (loss fusion)"
    source = "Xu et al., 2020"
    layers_need = pull_back

    def worst(self, network: PixelNet, x: Tensor, y: Tensor, stage: Stage) -> Tensor:
        bounds = Bounds(network, x, stage.eps)
        weight, row = bounds.margins(y)
        upper = -bounds.by_intervals(weight, row).view(len(y), -1)  # of z[j] − z[y]: (B, classes)
        by_intervals = cross_entropy(upper, y)
        if stage.beta == 0.0:
            return by_intervals
        lower = torch.minimum(bounds.by_intervals(-weight, row).view(len(y), -1), upper)
        top = upper.detach().amax(1, keepdim=True)  # so that no exp overflows
        low, high, width = (lower - top).exp(), (upper - top).exp(), upper - lower
        flat = width < 1e-4  # a point, such as the label's own difference: the line through it is as good as a chord
        slope = torch.where(flat, high, (high - low) / width.where(~flat, 1.0))
        each = weight.view(len(y), -1, network.classes)  # z[y] − z[j]
        summed = bounds.by_lines((slope[:, :, None] * each).sum(1), torch.arange(len(y), device=y.device))
        most = (high - slope * upper).sum(1) - summed
        fused = (most.clamp(min=1e-30).log() + top[:, 0]).mean()
        return stage.beta * fused + (1 - stage.beta) * by_intervals


class DiffAI(WorstCase):
    """IBP whose worst case is β · that of hybrid zonotopes + (1 − β) · that of intervals, a mix of two domains.

    While ε grows, so does the share of the ball that is bounded: the rest of ε moves its centre at random (inclusion
    sampling, 2019). `terms` pixels of each image, drawn at random, have generators (stochastic correlation); all other
    pixels, and whatever the ReLUs add, are intervals.
    """

    name = "diffai"
    title = "DiffAI"
    source = "Mirman et al., 2018, 2019"
    certified_by = ("box", "crown-ibp", "crown", "zonotope")
    settings = at_half_width(WorstCase.settings)
    layers_need = forward_zonotope

    def __init__(self, terms: int = 32) -> None:
        if terms < 1:
            raise ValueError(f"terms = {terms}: must be at least 1, the pixels of an image that have error terms")
        self.terms = terms

    def worst(self, network: PixelNet, x: Tensor, y: Tensor, stage: Stage) -> Tensor:
        share = stage.eps / stage.target if stage.target > 0 else 1.0
        drawn = torch.rand(2, *x.shape, generator=stage.generator("hybrid")).to(x)
        centre = (x + (1 - share) * stage.eps * (2 * drawn[0] - 1)).clamp(0.0, 1.0)
        bounds = Bounds(network, centre, share * stage.eps)
        intervals = cross_entropy(-bounds.interval_margins(y), y)
        if stage.beta == 0.0:
            return intervals
        zonotopes = cross_entropy(-bounds.zonotope_margins(y, drawn[1], self.terms), y)
        return stage.beta * zonotopes + (1 - stage.beta) * intervals
