"""The ε-ball as a box of floats, pushed through the layers: bounds of the network as executed."""

from abc import abstractmethod
from typing import Protocol

import torch
from torch import Tensor

from ..bounds.interval import ball
from ..bounds.margins import Proves
from ..models import PixelNet
from ..nn import Box
from ..nn.rounding import FLUSHED
from .chunks import in_chunks
from .proof import Proof


class BallProof(Proof):
    """What is proved of a ball by bounds over all of it, for as many images at a time as memory allows."""

    def __init__(self, network: PixelNet, x: Tensor, prediction: Tensor, off: float) -> None:
        super().__init__(prediction)
        self.network, self.x, self.off = network, x, off

    def proves(self, rows: Tensor, eps: Tensor) -> Tensor:
        parts = in_chunks(self.network, rows)
        radii = in_chunks(self.network, eps) if len(eps) > 1 else [eps] * len(parts)
        return torch.cat([self._proves(*pair) for pair in zip(parts, radii, strict=True)])

    @abstractmethod
    def _proves(self, rows: Tensor, eps: Tensor) -> Tensor:
        """Prove what `proves` says, of images that fit into memory together."""


class BoxProof(BallProof):
    """Intervals through the body up to the features, then the bounds of the readout."""

    def __init__(
        self, network: PixelNet, x: Tensor, prediction: Tensor, bounds: Proves, off: float, together: int = 1
    ) -> None:
        super().__init__(network, x, prediction, off)
        self.bounds, self.together = bounds, together

    def _proves(self, rows: Tensor, eps: Tensor) -> Tensor:
        features = self.network.features_box(ball(self.x[rows], eps))  # (b, F) each
        return self.bounds(features, self.prediction[rows], self.off)


class MarginBounds(Protocol):
    """Lower bounds of margins over boxes of pixels."""

    def margins(self, pixels: Box, best: Tensor) -> Tensor:
        """Bound z[best] − z[j], (b, classes) float64; infinity at the best class, −infinity where nothing is known."""


class MarginProof(BallProof):
    """The class is proved where its margins are positive."""

    def __init__(self, network: PixelNet, x: Tensor, prediction: Tensor, bounds: MarginBounds, off: float) -> None:
        super().__init__(network, x, prediction, off)
        self.bounds = bounds
        self.known = off <= FLUSHED * torch.finfo(x.dtype).tiny  # else boxes may be off by more than layers allow for

    def _proves(self, rows: Tensor, eps: Tensor) -> Tensor:
        if not self.known:
            return torch.zeros_like(rows, dtype=torch.bool)
        margins = self.bounds.margins(ball(self.x[rows], eps), self.prediction[rows])
        return (margins > 2 * self.off).all(1)
