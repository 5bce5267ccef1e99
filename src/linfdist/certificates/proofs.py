"""What methods share: one look at a few images, then questions about balls around them; the margin and boxes."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from ..bounds.interval import ball
from ..bounds.margins import Proves
from ..models import PixelNet
from ..models.rounding import flush_error
from ..nn import Box, Contract
from ..nn.base import DOWN, FLUSHED, UP


class Proof(ABC):
    """What one method can say about the network's predictions on a batch x (B, C, H, W), after a forward pass.

    prediction: (B,) int64. radius: (B,) float64, proved by that pass alone: the prediction is constant on the closed
    ball. closed_form: whether that is all this method can prove, so that there is nothing to search for.
    together: how many images cost hardly more than one, see `largest_proved`.
    """

    closed_form = False
    together = 1

    def __init__(self, prediction: Tensor, radius: Tensor | None = None) -> None:
        self.prediction = prediction
        self.radius = torch.zeros_like(prediction, dtype=torch.float64) if radius is None else radius

    @abstractmethod
    def proves(self, rows: Tensor, eps: Tensor) -> Tensor:
        """(b,) bool: the predictions of images x[rows] are proved constant on their closed eps-balls within [0, 1].

        rows (b,) int64; eps float64 >= 0, broadcastable to x[rows]: one for all, one for each image or for each pixel.
        """


def largest_of(eps: Tensor) -> Tensor:
    """The radius of a ball that holds the box of each image: (b,), or (1,) for all."""
    return eps.flatten(1).amax(1)


ROWS = 512  # enough for the kernels to be at their best
ELEMENTS = 1 << 24  # of the largest activation of a chunk: boxes hold a handful of tensors of that size, 64 MB each


def rows_at_once(network: PixelNet) -> int:
    """Return how many images go through the network at once: scratch memory stays at a few hundred megabytes."""
    return max(1, min(ROWS, ELEMENTS // network.elements()))


def in_chunks(network: PixelNet, tensor: Tensor) -> Sequence[Tensor]:
    """A tensor with one row per image, cut where the network takes no more images at once."""
    return tensor.split(rows_at_once(network)) if len(tensor) > 1 else (tensor,)


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


ENOUGH = 1.0  # pixels lie in [0, 1]: such a ball holds all images


class LogitMargin(Proof):
    """A network that is Lipschitz up to the logits: a closed form, nothing but one forward pass.

    radius = (gap − 4E) / 2L, rounded down. Moving x by r moves each exact logit by at most L r, so the gap between two
    by at most 2 L r; and each computed logit is within E of the exact one, at x and at x′. The radius is rounded down
    by more than it could be rounded up, so the ball is closed.
    """

    closed_form = True

    def __init__(self, network: PixelNet, x: Tensor, lipschitz: float, error: float) -> None:
        z = torch.cat([network(few) for few in in_chunks(network, x)])  # (B, classes)
        best = z.topk(2, dim=1).values
        gap = best[:, 0].double() - best[:, 1]  # of numbers that are exact in double, rounded once by 2^-53
        radius = (gap * DOWN - 4 * error * UP) / (2 * lipschitz) * DOWN
        finite = z.isfinite().all(1)  # NaN and overflow certify nothing
        self.network, self.error = network, error
        self.gap = gap.where(finite, 0.0)
        super().__init__(z.argmax(1), torch.where(finite, radius.clamp_(0.0, ENOUGH), 0.0))

    def proves(self, rows: Tensor, eps: Tensor) -> Tensor:
        """At eps = 0, x itself is the ball, and its logits are known but for what becomes of denormal numbers."""
        reach = largest_of(eps).clamp(max=1.0)  # a radius of 1 holds all images
        holds = (self.radius[rows] > 0) & (self.radius[rows] >= reach)
        return holds if (reach > 0).all() else holds | ((reach == 0) & (self.gap[rows] > 2 * self.off))

    @cached_property
    def off(self) -> float:
        """How far a logit of the same image may be from the one that was computed here.

        Where sums may be taken in another order, both are within E of the exact one, and that is all we know.
        """
        modules = [module for module in self.network.modules() if isinstance(module, Contract)]
        repeatable = all(module.repeatable for module in modules)
        return flush_error(self.network, self.error) if repeatable else 2 * self.error


class FeatureMargin(Proof):
    """Section 6: the features move by at most L ε, then the readout's bounds. One pass through the body in all."""

    def __init__(self, network: PixelNet, x: Tensor, bounds: Proves, lipschitz: float, error: float) -> None:
        features = network.features(x)  # (B, F)
        super().__init__(network.readout(features).argmax(1))
        self.features, self.bounds, self.lipschitz, self.error = features.double(), bounds, lipschitz, error

    def proves(self, rows: Tensor, eps: Tensor) -> Tensor:
        """Computed features at x and x′ each lie within E of the exact ones: they differ by at most L ε + 2E."""
        features = self.features[rows]
        reach = (largest_of(eps)[:, None] * self.lipschitz + 2 * self.error) * UP + features.abs() * 2**-50
        return self.bounds(Box(features - reach, features + reach), self.prediction[rows], 0.0)
