"""Group Sort networks (Anil et al., ICML 2019): a hinge of the margin, and weights projected after each step."""

from typing import Any

from torch import Tensor
from torch.nn import Parameter
from torch.nn.functional import cross_entropy, multi_margin_loss

from ...models import PixelNet
from ..group_sort import GroupSortNet, project_rows
from ..networks import sized
from ..plan import Stage
from .base import Method

GROUP = 2  # MaxMin


class GroupSortHinge(Method):
    """Σ max(0, θ − z[y] + z[j]) over the other classes j, with the θ that a radius of `stretch` · ε takes.

    After each step, each neuron's weights are projected to an ℓ1 norm of at most 1, as in the cited work: weights stay
    what the network computes with, where a normalised parametrisation would make files depend on how it rounds.
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
        """Numbers of neurons are rounded up to whole groups."""
        layers = sized(size, width)
        convolutions = [[_whole(channels), *rest] for channels, *rest in layers["convolutions"]]
        return {"convolutions": convolutions, "hidden": [_whole(each) for each in layers["hidden"]], "group": GROUP}


def _whole(count: int) -> int:
    return -(-count // GROUP) * GROUP
