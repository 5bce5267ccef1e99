"""Training of networks whose Lipschitz constant is known: Group Sort and SortNet."""

import math
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn
from torch.nn import Parameter
from torch.nn.functional import cross_entropy, multi_margin_loss

from ...models import PixelNet
from ...training.losses import clipped_hinge_loss
from ..activations import project_rows
from ..networks import GroupSortNet, SortNet, depth_and_width, sized
from ..plan import Stage
from .base import TrainingMethod

GROUP = 2  # MaxMin


class GroupSortHinge(TrainingMethod):
    """Σ max(0, θ − z[y] + z[j]) over the other classes j, with the θ that a radius of `stretch` · ε requires.

    After each step, each neuron's weights are projected to an ℓ1 norm of at most 1, as in the cited work. So files hold
    the weights that the network computes with; with a normalised parametrisation they would depend on its rounding.
    """

    name = "group-sort"
    title = "Group Sort"
    source = "Anil et al., 2019"
    certified_by = ("box",)
    kind = GroupSortNet
    settings = ({"lr": 0.01}, {"lr": 0.01, "stretch": 0.3}, {"lr": 0.01, "stretch": 0.1})

    def __init__(self, stretch: float = 1.0) -> None:
        if not 0 < stretch < float("inf"):
            raise ValueError(f"stretch = {stretch!r}: must be more than 0, the radius to train for in units of eps")
        self.stretch = stretch

    def start(self, network: PixelNet, stage: Stage) -> list[Parameter]:
        self.after_step(network)
        return super().start(network, stage)

    def __call__(self, network: PixelNet, x: Tensor, y: Tensor, stage: Stage) -> tuple[Tensor, Tensor]:
        z = network(x)
        if stage.eps == 0.0:
            return cross_entropy(z, y), z
        margin = 2 * self.stretch * stage.eps * network.lipschitz
        return multi_margin_loss(z, y, margin=margin) / margin, z

    def after_step(self, network: PixelNet) -> None:
        for parameter in network.parameters():
            if parameter.dim() > 1:
                project_rows(parameter)

    def layers(self, size: str, width: float) -> dict[str, Any]:
        """Round the numbers of neurons of `sized` up to whole groups."""
        layers = sized(size, width)
        convolutions = [[_whole(channels), *rest] for channels, *rest in layers["convolutions"]]
        return {"convolutions": convolutions, "hidden": [_whole(each) for each in layers["hidden"]], "group": GROUP}


def _whole(count: int) -> int:
    return -(-count // GROUP) * GROUP


class Sort(TrainingMethod):
    """The clipped hinge at twice the plan's ε + λ · cross-entropy of s · z, s learned; p and λ move with the ramp.

    The loss is that of ℓ∞-dist nets (Zhang et al., ICLR 2022), with dropout of neurons. keep: the probability that an
    input of a layer is kept; p: the p of the distances, during the warm-up and at the end of the ramp, after which it
    is infinite; ce: λ, at the same times.
    """

    name = "sortnet"
    title = "SortNet"
    source = "Zhang et al., 2022"
    certified_by = ("box",)
    kind = SortNet
    settings = tuple({"lr": lr, "reach": 2.0, "size": "mlp"} for lr in (0.02, 0.03, 0.01))
    adam: ClassVar = {"betas": (0.9, 0.99), "eps": 1e-10}

    def __init__(
        self, keep: float = 0.7, p: tuple[float, float] = (8.0, 1000.0), ce: tuple[float, float] = (1.0, 0.01)
    ) -> None:
        if not min(p) >= 1 or not min(ce) > 0:
            raise ValueError(f"p = {p!r} must be at least 1, and ce = {ce!r} more than 0")
        self.keep, self.p, self.ce = keep, p, ce
        self.scale = nn.Parameter(torch.ones(()))

    def start(self, network: PixelNet, stage: Stage) -> list[nn.Parameter]:
        if not isinstance(network, SortNet):
            raise TypeError(
                f"method 'sortnet' trains a SortNet, got a {type(network).__name__}: see TrainingMethod.network"
            )
        self.scale = nn.Parameter(torch.ones((), device=network.any_tensor.device))
        return [*super().start(network, stage), self.scale]

    def __call__(self, network: PixelNet, x: Tensor, y: Tensor, stage: Stage) -> tuple[Tensor, Tensor]:
        network = cast(SortNet, network)  # checked by `start`
        (p0, p1), (ce0, ce1) = self.p, self.ce
        p = p0 * (p1 / p0) ** stage.share if stage.share < 1 else math.inf
        z = network.dropped(x, p, stage.generator("dropout"))
        loss = ce0 * (ce1 / ce0) ** stage.share * cross_entropy(self.scale.to(z.device) * z, y)
        if stage.target > 0:
            loss = loss + clipped_hinge_loss(z, y, 2 * stage.target * network.lipschitz)
        return loss, z

    def layers(self, size: str, width: float) -> dict[str, Any]:
        """Return as many hidden layers as `sized` has of either kind, each of 512 · width neurons."""
        return {"hidden": depth_and_width(size, width), "keep": self.keep}
