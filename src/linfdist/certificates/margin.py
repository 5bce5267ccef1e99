"""The certificate of Fact 3.6: a 1-Lipschitz network cannot change its mind within half its margin."""

import torch
from torch import Tensor

from ..models import ConvDistNetMLP, DistNet, DistNetMLP
from ..nn import Box
from .chunks import rows_at_once
from .head_bounds import HeadBounds
from .proof import Proof, largest_of
from .rounding import DOWN, UP


class PlainMargin(Proof):
    """A network of dist layers up to the logits: a closed form, nothing but one forward pass.

    radius = (gap − 4E) / 2L, rounded down. Moving x by r moves each exact logit by at most L r, so the gap between two
    by at most 2 L r; and each computed logit is within E of the exact one, at x and at x′. The radius is rounded down
    by more than it could be rounded up, so the ball is closed.
    """

    closed_form = True

    def __init__(self, network: DistNet, x: Tensor, lipschitz: float, error: float) -> None:
        z = torch.cat([network(few) for few in x.split(rows_at_once(network))])  # (B, classes)
        best = z.topk(2, dim=1).values
        gap = best[:, 0].double() - best[:, 1]  # of numbers that are exact in double, rounded once by 2^-53
        radius = (gap * DOWN - 4 * error * UP) / (2 * lipschitz) * DOWN
        finite = z.isfinite().all(1)  # NaN and overflow certify nothing
        self.alone = finite & (gap > 0)  # no tie
        super().__init__(z.argmax(1), torch.where(finite, radius.clamp_(min=0.0), 0.0))

    def proves(self, rows: Tensor, eps: Tensor) -> Tensor:
        """At eps = 0, x itself is the ball, and its logits are known to the bit."""
        return self.alone[rows] & (self.radius[rows] >= largest_of(eps))


class HeadMargin(Proof):
    """Section 6: the features move by at most L ε, then the head's bounds. One pass through the dist layers in all."""

    def __init__(
        self, network: DistNetMLP | ConvDistNetMLP, x: Tensor, head: HeadBounds, lipschitz: float, error: float
    ) -> None:
        features = network.features(x)  # (B, F)
        super().__init__(network.head(features).argmax(1))
        self.features, self.head, self.lipschitz, self.error = features.double(), head, lipschitz, error

    def proves(self, rows: Tensor, eps: Tensor) -> Tensor:
        """Computed features at x and x′ each lie within E of the exact ones: they differ by at most L ε + 2E."""
        features = self.features[rows]
        reach = (largest_of(eps)[:, None] * self.lipschitz + 2 * self.error) * UP + features.abs() * 2**-50
        return self.head.proves(Box(features - reach, features + reach), self.prediction[rows])
