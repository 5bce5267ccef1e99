"""Proofs by lower bounds of the margins between classes: linear bounds, zonotopes."""

from functools import partial
from typing import Protocol

import torch
from torch import Tensor

from ..bounds.interval import ball
from ..models import PixelNet
from ..nn import Box
from ..nn.base import FLUSHED
from .methods import MakesProof
from .proofs import BallProof


class MarginBounds(Protocol):
    """Lower bounds of margins over boxes of pixels."""

    def margins(self, pixels: Box, best: Tensor) -> Tensor:
        """Bound z[best] − z[j]: (b, classes) float64, infinity at the best class, −infinity where no bound is known."""


class MarginProof(BallProof):
    """The class is proved where its margins are positive."""

    def __init__(
        self, bounds: MarginBounds, network: PixelNet, x: Tensor, prediction: Tensor, tolerance: float
    ) -> None:
        super().__init__(network, x, prediction, tolerance)
        self.bounds = bounds
        # Beyond this, boxes may be wrong by more than layers allow for.
        self.known = tolerance <= FLUSHED * torch.finfo(x.dtype).tiny

    def _proves(self, rows: Tensor, eps: Tensor) -> Tensor:
        if not self.known:
            return torch.zeros_like(rows, dtype=torch.bool)
        margins = self.bounds.margins(ball(self.x[rows], eps), self.prediction[rows])
        return (margins > 2 * self.tolerance).all(1)


def by_margins(*bounds: MarginBounds) -> list[MakesProof]:
    """Return proofs by lower bounds of margins, which are tried in turn."""
    return [partial(MarginProof, each) for each in bounds]
