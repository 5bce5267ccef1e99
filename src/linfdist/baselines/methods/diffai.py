"""DiffAI (Mirman et al., 2018 and 2019): hybrid zonotopes and intervals of balls that grow inside the whole one."""

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from ...bounds.training import Bounds
from ...bounds.zonotope import forward_zonotope
from ...models import PixelNet
from ..plan import Stage
from .base import at_half_width
from .ibp import IBP


class DiffAI(IBP):
    """IBP whose worst case is β · that of hybrid zonotopes + (1 − β) · that of intervals, a mix of two domains.

    While ε grows, so does the share of the ball that is bounded: the rest of ε moves its centre at random (inclusion
    sampling, 2019). `terms` pixels of each image, drawn at random, have error terms (stochastic correlation); all other
    pixels, and whatever the ReLUs add, are intervals.
    """

    name = "diffai"
    title = "DiffAI"
    source = "Mirman et al., 2018, 2019"
    certified_by = ("box", "crown-ibp", "crown", "zonotope")
    settings = at_half_width(IBP.settings)
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
