"""Interval bound propagation (Gowal et al., 2018)."""

from typing import ClassVar

from torch import Tensor
from torch.nn.functional import cross_entropy

from ...bounds.forms import pull_back
from ...bounds.training import Bounds
from ...models import PixelNet
from ..plan import Stage
from .base import Method, Settings


class IBP(Method):
    """κ · cross-entropy + (1 − κ) · cross-entropy of the worst case that intervals allow for; ε grows, κ falls."""

    name = "ibp"
    title = "IBP"
    source = "Gowal et al., 2018"
    settings: ClassVar[Settings] = (
        {"lr": 1e-3, "reach": 1.1},
        {"lr": 1e-3, "reach": 4 / 3},  # 0.4 for 0.3
        {"lr": 2e-3, "reach": 1.1, "kappa": (1.0, 0.0)},
    )
    readout_needs = pull_back

    def __call__(self, network: PixelNet, x: Tensor, y: Tensor, stage: Stage) -> tuple[Tensor, Tensor]:
        z = network(x)
        natural = cross_entropy(z, y)
        if stage.kappa == 1.0:
            return natural, z
        return stage.kappa * natural + (1 - stage.kappa) * self.worst(network, x, y, stage), z

    def worst(self, network: PixelNet, x: Tensor, y: Tensor, stage: Stage) -> Tensor:
        """An upper bound of the cross-entropy over the balls, averaged over the batch."""
        return cross_entropy(-Bounds(network, x, stage.eps).interval_margins(y), y)
