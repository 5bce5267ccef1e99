"""The certificate of Fact 3.6: a 1-Lipschitz network cannot change its mind within half its margin."""

from functools import cached_property

import torch
from torch import Tensor

from ..bounds.margins import Proves
from ..models import PixelNet
from ..models.rounding import flush_error
from ..nn import Box, Contract
from ..nn.rounding import DOWN, UP
from .chunks import in_chunks
from .proof import Proof, largest_of

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
