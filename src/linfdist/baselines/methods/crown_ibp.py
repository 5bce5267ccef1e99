"""CROWN-IBP (Zhang et al., 2020): intervals up to the last layer's inputs, then linear forms back to the pixels."""

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from ...bounds.forms import pull_back
from ...bounds.training import Bounds
from ...models import PixelNet
from ..plan import Stage
from .ibp import IBP


class CrownIBP(IBP):
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


class FusedCrownIBP(IBP):
    """CROWN-IBP with loss fusion (Xu et al., 2020): one linear form for each image, and not one for each class.

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
