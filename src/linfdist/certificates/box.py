"""The ε-ball as a box of floats, pushed through the layers: bounds of the network as executed."""

from abc import abstractmethod
from typing import Protocol

import torch
from torch import Tensor

from ..bounds.margins import Proves
from ..models import PixelNet
from ..nn import Box
from ..nn.rounding import FLUSHED
from .chunks import in_chunks
from .proof import Proof


def ball(x: Tensor, eps: Tensor) -> Box:
    """A box that holds every image x′ of [0, 1], in x's precision, with |x′ − x| <= eps in exact arithmetic.

    x float32 or float64 in [0, 1]; eps float64 >= 0, broadcastable to x. Only eps must be rounded up to x's precision:
    x′ <= x + eps is a float, and rounding keeps the order, so x′ is at most the rounded sum as well.
    """
    near = eps.to(x.dtype)
    reach = torch.where(near < eps, torch.nextafter(near, torch.full_like(near, torch.inf)), near)
    return Box((x - reach).clamp_(0.0, 1.0), (x + reach).clamp_(0.0, 1.0))


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


class LeadBounds(Protocol):
    """Lower bounds of by how much a class leads over boxes of pixels."""

    def leads(self, pixels: Box, best: Tensor) -> Tensor:
        """(b, classes) float64: bounds of z[best] − z[j]; infinity at the best class, −infinity if nothing is known."""


class LeadProof(BallProof):
    """The class is proved where its logit leads all others."""

    def __init__(self, network: PixelNet, x: Tensor, prediction: Tensor, bounds: LeadBounds, off: float) -> None:
        super().__init__(network, x, prediction, off)
        self.bounds = bounds
        self.known = off <= FLUSHED * torch.finfo(x.dtype).tiny  # else boxes may be off by more than layers allow for

    def _proves(self, rows: Tensor, eps: Tensor) -> Tensor:
        if not self.known:
            return torch.zeros_like(rows, dtype=torch.bool)
        leads = self.bounds.leads(ball(self.x[rows], eps), self.prediction[rows])
        return (leads > 2 * self.off).all(1)
