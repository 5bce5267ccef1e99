"""Layers of sorted sums of distances (Zhang et al., NeurIPS 2022); ℓ∞-dist layers are a special case."""

import math
from fractions import Fraction

import torch
from torch import Tensor, nn

from ..eps import round_up
from ..nn import Box, DistLinear, LipschitzModule, Readout, Rounding
from ..nn.base import FLUSHED, Shape, gamma, widened
from ..nn.dist import distance_rounding
from ..ops.dist import dist
from .sorted_sum import geometric, sorted_sum, sorted_sum_box

TERMS = 10  # of a sum: all later terms together weigh (1 − q)^10
SAME = 32  # images that share a dropout mask in training: with a mask each, each would need its own weights
LEAST = 2.0**-60  # least weight of a sum, so that products with weights are as harmless as sums


class SortLinear(LipschitzModule):
    """y[k] = Σ_j c[j] · (the j-th largest of |x[i] − w[k, i]|) (+ b[k]), with the weights c of `geometric`.

    x (B, in_features) -> (B, out_features). All c are positive and their sum is at most 1, so the layer is 1-Lipschitz
    in ℓ∞: each of the sorted distances is. keep: the q of `geometric`; terms: how many distances are summed up, in the
    certified network too. At q = 1 this is a `DistLinear`; at any q it is initialised like one.
    """

    absorbs_flushes = True
    holds_distances = True
    bias: nn.Parameter | None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        keep: float,
        terms: int = TERMS,
        bias: bool = False,
        identity_init: bool = False,
    ) -> None:
        super().__init__()
        if not 0 < keep <= 1:
            raise ValueError(f"keep = {keep!r}: must be more than 0 and at most 1, the part of the inputs to keep")
        if not 1 <= terms <= 64:
            raise ValueError(f"terms = {terms!r}: must be between 1 and 64, the number of distances in a sum")
        self.keep, self.shares = keep, geometric(keep, terms) if keep < 1 else (1.0,)
        if self.shares[-1] < LEAST:
            raise ValueError(f"keep = {keep!r} and terms = {terms!r}: the last terms have weight 0: give fewer terms")
        start = DistLinear(in_features, out_features, bias, identity_init)
        self.weight = start.weight
        self.register_parameter("bias", start.bias)

    @property
    def lipschitz(self) -> float:
        """The sum of the weights c, rounded up."""
        return round_up(sum(map(Fraction, self.shares), Fraction(0)))

    def forward(self, x: Tensor, p: float | Tensor = math.inf) -> Tensor:
        """Return the sorted sums, or at a finite p the ℓp distances over all inputs, whose gradients attacks use."""
        y = sorted_sum(x, self.weight, self.shares) if float(p) == math.inf else dist(x, self.weight, p)
        return y if self.bias is None else y + self.bias

    def dropped(self, x: Tensor, p: float, generator: torch.Generator) -> Tensor:
        """Compute ℓp distances with dropout: each input is kept with probability q. Training differentiates this.

        The j-th largest distance is the largest that is kept with probability q (1 − q)^(j − 1): at p = inf the
        expectation is the layer itself, except for the terms that the layer leaves out.
        """
        parts = []
        for few in x.split(SAME):
            kept = (torch.rand(x.shape[1], generator=generator) < self.keep).nonzero()[:, 0].to(x.device)
            parts.append(dist(few[:, kept], self.weight[:, kept], p))
        y = torch.cat(parts)
        return y if self.bias is None else y + self.bias

    def forward_box(self, box: Box) -> Box:
        """Bound each neuron tightly, except for a slack.

        An executed output has a relative error of at most K + 3 roundings, and so has each bound here, besides what
        underflows. Inputs that lie outside the box by what flushing may cost move an output by no more than that.
        """
        precision = torch.finfo(box.lower.dtype)
        near, far = (side.double() for side in sorted_sum_box(box, self.weight, self.shares))
        bias = torch.zeros_like(near[:1]) if self.bias is None else self.bias.detach().double()
        errors = gamma(4 * (len(self.shares) + 3), precision.eps / 2)
        slack = errors * (far + bias.abs()) + 3 * FLUSHED * precision.tiny
        return widened(near + bias, far + bias, slack, box.lower.dtype)

    def output_shape(self, shape: Shape) -> Shape:
        return (*shape[:-1], len(self.weight))

    def rounding(self, size: Fraction, unit: Fraction) -> Rounding:
        """Count a subtraction, K products and sums, and a bias; what underflows is less than another rounding."""
        steep = max(Fraction(1), sum(map(Fraction, self.shares), Fraction(0)))
        reach = max(distance_rounding(self.weight, self.bias, size, unit).size, Fraction(1)) * steep
        error = (len(self.shares) + 3) * unit * reach
        return Rounding(reach + error, reach + error, error)

    def check(self, name: str) -> None:
        if not all(LEAST <= share <= 1 for share in self.shares) or not 0 < sum(map(Fraction, self.shares)) <= 1:
            raise ValueError(f"{name}.shares = {self.shares!r:.80}: must be positive numbers whose sum is at most 1")

    def terms(self, shape: Shape) -> int:
        return self.weight.numel()

    def elements(self, shape: Shape) -> int:
        return max(math.prod(shape), len(self.weight) * len(self.shares))

    def extra_repr(self) -> str:
        outputs, inputs = self.weight.shape
        return f"{inputs}, {outputs}, keep={self.keep}, terms={len(self.shares)}, bias={self.bias is not None}"


class NearestSorted(Readout):
    """z = −(sorted sum + b): the class whose neuron is nearest wins. x (B, in_features) -> (B, classes)."""

    absorbs_flushes = True
    holds_distances = True

    def __init__(self, in_features: int, classes: int, keep: float, terms: int = TERMS) -> None:
        super().__init__()
        self.neurons = SortLinear(in_features, classes, keep, terms, bias=True)

    @property
    def classes(self) -> int:
        return len(self.neurons.weight)

    @property
    def lipschitz(self) -> float:
        return self.neurons.lipschitz

    def forward(self, x: Tensor, p: float | Tensor = math.inf) -> Tensor:
        return -self.neurons(x, p)

    def forward_box(self, box: Box) -> Box:
        lower, upper = self.neurons.forward_box(box)
        return Box(-upper, -lower)

    def rounding(self, size: Fraction, unit: Fraction) -> Rounding:
        return self.neurons.rounding(size, unit)

    def terms(self, shape: Shape) -> int:
        return self.neurons.terms(shape)

    def elements(self, shape: Shape) -> int:
        return self.neurons.elements(shape)
