"""Layers of ℓ1 and ℓ2 distances, as in AdderNets (Chen et al., 2020): not 1-Lipschitz in ℓ∞ (Remark 3.5)."""

import math
from collections.abc import Callable
from fractions import Fraction

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..bounds.forms import BLOCK, OWN
from ..nn import Box, LipschitzModule, Rounding
from ..nn.base import FLUSHED, Shape, gamma, largest, new_weight, widened

VARIANCE = 1e-5  # added to variances


class NormLinear(LipschitzModule):
    """y[k] = ‖x − w[k]‖_p for p = 1 or 2, whatever p the network is called with. x (B, I) -> (B, O).

    All of I inputs may move the same way at once: the ℓ∞ Lipschitz constant is I^(1/p), attained where all
    |x[i] − w[k, i]| are the same. Sums are executed in any order. Weights start as N(0, 1).
    """

    absorbs_flushes = True

    def __init__(self, in_features: int, out_features: int, norm: int) -> None:
        super().__init__()
        if norm not in (1, 2):
            raise ValueError(f"norm = {norm!r}: must be 1 or 2")
        self.norm = norm
        self.weight = new_weight(out_features, in_features)

    def check(self, name: str) -> None:
        if self.norm not in (1, 2):
            raise ValueError(f"{name}.norm = {self.norm!r}: must be 1 or 2, because other norms have no proof")

    @property
    def inputs(self) -> int:
        """The number of terms that a neuron sums up."""
        return self.weight.shape[1]

    @property
    def lipschitz(self) -> float:
        return float(self.inputs) if self.norm == 1 else math.nextafter(math.sqrt(self.inputs), math.inf)

    def forward(self, x: Tensor, p: float | Tensor = math.inf) -> Tensor:
        return torch.cdist(x, self.weight, float(self.norm), compute_mode="donot_use_mm_for_euclid_dist")

    def forward_box(self, box: Box) -> Box:
        """Bound each neuron tightly, except for a slack; in float64, a few neurons at a time."""
        precision = torch.finfo(box.lower.dtype)
        lower, upper = box.lower.double(), box.upper.double()
        near = self._each(lower, upper, lambda low, high, w: torch.maximum(low - w, w - high).clamp(min=0.0))
        far = self._each(lower, upper, lambda low, high, w: torch.maximum(high - w, w - low))
        errors = 2 * gamma(self.inputs + 4, precision.eps / 2) + OWN * (self.inputs + 16)
        slack = errors * far + self._underflow(precision)
        most = far.square() if self.norm == 2 else far
        return widened(near, far, slack.where(most < precision.max / 4, math.inf), box.lower.dtype)

    def _each(self, lower: Tensor, upper: Tensor, term: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Tensor:
        few = max(1, BLOCK // max(1, lower.numel()))
        parts = [
            torch.linalg.vector_norm(term(lower[:, None], upper[:, None], w), self.norm, dim=2)
            for w in self.weight.detach().double().split(few)
        ]
        return torch.cat(parts, 1)

    def _underflow(self, precision: torch.finfo) -> float:
        """Bound the error of an output by underflow: squares of numbers that are not tiny themselves may be lost."""
        moved = self.inputs * FLUSHED * precision.tiny
        return 2 * moved if self.norm == 1 else 2 * moved + 4 * math.sqrt(self.inputs * precision.tiny)

    def output_shape(self, shape: Shape) -> Shape:
        return (*shape[:-1], len(self.weight))

    def rounding(self, size: Fraction, unit: Fraction) -> Rounding:
        """Count a subtraction, at most as many roundings as there are inputs, and a square and a root for p = 2."""
        count = self.inputs + 4
        if 2 * count * unit > 1:
            raise ValueError(
                f"sums of {self.inputs} terms are too long to bound their rounding in this "
                "precision: use fewer inputs, or float64"
            )
        reach = max(size + largest(self.weight), Fraction(1))
        whole = reach * Fraction(self.lipschitz)
        error = count * unit / (1 - count * unit) * whole + Fraction(self._underflow(torch.finfo(self.weight.dtype)))
        return Rounding(whole + error, 2 * self.inputs * reach**self.norm, error)

    def terms(self, shape: Shape) -> int:
        return self.weight.numel()

    def extra_repr(self) -> str:
        return f"{self.inputs}, {len(self.weight)}, norm={self.norm}"


class BatchNorm(LipschitzModule):
    """y = (x − mean) · a + b, with a = g / √(variance + 1e-5), each feature on its own. x (B, F) -> (B, F).

    In training, mean and variance are those of the batch; in eval mode, they are running means of these. Networks of
    ℓ1 distances do not train without it (Chen et al., 2020). A feature of small variance is stretched, and so is an
    attack.
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, features: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(features)), nn.Parameter(torch.zeros(features))
        self.register_buffer("running_mean", torch.zeros(features))
        self.register_buffer("running_var", torch.ones(features))

    @property
    def scale(self) -> Tensor:
        """The factor a, as executed: (F,)."""
        return self.weight / (self.running_var + VARIANCE).sqrt()

    @property
    def lipschitz(self) -> float:
        return float(self.scale.detach().abs().max())

    def forward(self, x: Tensor, p: float | Tensor = math.inf) -> Tensor:
        if not self.training:
            return (x - self.running_mean) * self.scale + self.bias
        return functional.batch_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias, training=True, eps=VARIANCE
        )

    def forward_box(self, box: Box) -> Box:
        """Map both ends: each feature is monotone as computed, up or down.

        Raises RuntimeError in training mode, where the map depends on the batch.
        """
        if self.training:
            raise RuntimeError("in training mode the scale depends on the whole batch: call model.eval() first")
        ends = self(box.lower), self(box.upper)
        return Box(torch.minimum(*ends), torch.maximum(*ends))

    def output_shape(self, shape: Shape) -> Shape:
        return shape

    def rounding(self, size: Fraction, unit: Fraction) -> Rounding:
        """Count three operations, and for flushed denormal factors the smallest normal number times what they scale."""
        reach, steep = size + largest(self.running_mean), largest(self.scale)
        whole = max(reach * max(steep, Fraction(1)) + largest(self.bias), Fraction(1))
        tiny = Fraction(torch.finfo(self.weight.dtype).tiny)
        error = 4 * unit * whole + 2 * tiny * (reach + steep + 1)
        return Rounding(whole + error, whole + error, error)

    def check(self, name: str) -> None:
        if not (self.running_var >= 0).all():
            raise ValueError(f"{name}.running_var has negative values, but a variance must be at least 0")
        largest(self.scale)
