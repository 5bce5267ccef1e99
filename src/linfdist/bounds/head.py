"""Bounds of the MLP head: IBP and CROWN, the last layer merged with the difference of two classes."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import linear

from ..nn import Box, Head
from ..nn.base import UP, gamma
from .forms import OWN
from .interval import BoundsMargins, Margins, known, margins
from .margin_reach import margin_reach, reach_by_label
from .tanh import Lines, tanh_lines

TANH_EPS = 4  # torch's tanh errs by at most 4 epsilons of its dtype, anywhere; in float32 less than one is seen
DOUBLE_TANH_EPS = 16  # in float64 this also covers the tanh of the bounds, and then as much again
BLOCK = 1 << 21  # elements of the largest scratch tensor, unless one row is longer


@dataclass(frozen=True)
class Hidden:
    """Bounds of the head's hidden layer over boxes of features, each (b, H); NaN where a value may overflow."""

    features: Box  # (b, F) float64
    lower: Tensor  # of w₁ f + b₁ as executed
    upper: Tensor
    slack: Tensor  # bounds |w₁ f + b₁ as executed − exact| plus the rounding of the bounds themselves
    low: Tensor  # of tanh as executed
    high: Tensor
    output_slack: Tensor  # (b, classes): bounds |z as executed − w₂ t − b₂| for the executed t


class HeadBounds:
    """Bounds of z = w₂ tanh(w₁ f + b₁) + b₂, executed in the head's precision, in any order, with or without FMA.

    Everything here is float64 on top of float32 (or float64) weights. A sum of n products and a bias, executed with
    unit roundoff u, errs by at most γₙ₊₂ (Σ|wᵢ fᵢ| + |b|), and by what underflows; see docs/certificates.md.
    """

    def __init__(self, dtype: torch.dtype, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor) -> None:
        """Take the matrices w1 (H, F) and w2 (classes, H) as the head multiplies by them, in its precision `dtype`."""
        self.precision = torch.finfo(dtype)
        self.wobble = (DOUBLE_TANH_EPS if dtype == torch.float64 else TANH_EPS) * self.precision.eps
        self.w1, self.b1, self.w2, self.b2 = (each.detach().double() for each in (w1, b1, w2, b2))
        self.abs_w1, self.abs_w2 = self.w1.abs(), self.w2.abs()
        self.largest_w1, self.largest_w2 = self.abs_w1.max(), self.abs_w2.max()

    def margins(self, features: Box, best: Tensor) -> Margins:
        """Bound the margins of class best[k] over the k-th box of features by IBP.

        `Margins.closer` also runs CROWN, and takes its bound where it is better. features (b, F) float64, best (b,).
        """
        hidden = self.hidden(features)
        apart = self.ibp(hidden, best)

        def closer(wanted: Tensor) -> Tensor:
            row, other = (wanted & (apart < torch.inf)).nonzero().unbind(1)
            better = torch.maximum(apart[row, other], self.crown(hidden, best, row, other))
            return apart.index_put((row, other), better)

        furthest = torch.maximum(hidden.low.abs(), hidden.high.abs())
        size = furthest @ self.abs_w2.T + self.b2.abs() + hidden.output_slack  # (b, classes)
        return Margins(apart, size.amax(1), closer)

    def hidden(self, features: Box) -> Hidden:
        lower, upper = features
        furthest = torch.maximum(lower.abs(), upper.abs())
        size = furthest @ self.abs_w1.T + self.b1.abs()  # (b, H)
        slack = self._slack(size, self.w1.shape[1], furthest.amax(1, keepdim=True) + self.largest_w1)
        middle = (lower + upper) / 2 @ self.w1.T + self.b1
        reach = (upper - lower) / 2 @ self.abs_w1.T + slack
        low, high = middle - reach, middle + reach
        t_low, t_high = low.tanh() - self.wobble, high.tanh() + self.wobble
        furthest = torch.maximum(t_low.abs(), t_high.abs())
        output = self._slack(furthest @ self.abs_w2.T + self.b2.abs(), self.w2.shape[1], 2 + self.largest_w2)
        return Hidden(features, low, high, slack, t_low, t_high, output)

    def _slack(self, size: Tensor, terms: int, largest_factors: Tensor) -> Tensor:
        """Bound the error of sums of `terms` products: as executed (rounding, underflow) and in float64 here.

        NaN if the sums may overflow. size: Σ|wᵢ fᵢ| + |b|; largest_factors: at least max|wᵢ| + max|fᵢ|.
        """
        relative = gamma(terms + 2, self.precision.eps / 2) + OWN * (sum(self.w1.shape) + 16)
        slack = relative * size + 4 * terms * self.precision.tiny * (1 + largest_factors)
        return slack.where(size + slack < self.precision.max / 4, torch.nan)

    def ibp(self, hidden: Hidden, best: Tensor) -> Tensor:
        """Bound the margins from below (b, classes) by the box of the hidden layer alone.

        The bound is infinity at the best class itself, and −infinity where nothing can be proved.
        """
        middle, half = (hidden.low + hidden.high) / 2, (hidden.high - hidden.low) / 2
        z = middle @ self.w2.T + self.b2  # (b, K)
        bounds = z.gather(1, best[:, None]) - z - hidden.output_slack.gather(1, best[:, None]) - hidden.output_slack
        return known(bounds - reach_by_label(self.w2, half, best), best)

    def crown(self, hidden: Hidden, best: Tensor, row: Tensor, other: Tensor) -> Tensor:
        """Bound z[best] − z[other] from below (P,) for pairs of an image and a class.

        tanh lies between two lines, so the margin is bounded by a linear form of the features, and this by their box.
        The bound is −infinity where nothing can be proved.
        """
        used, place = row.unique(return_inverse=True)
        lines = tanh_lines(hidden.lower[used], hidden.upper[used])
        piece = max(1, BLOCK // max(self.w1.shape))
        values = hidden.low.new_empty(len(row))
        for start in range(0, len(row), piece):
            part = slice(start, start + piece)
            at = Lines(*(line[place[part]] for line in lines))
            values[part] = self._crown(hidden, at, best[row[part]], row[part], other[part])
        return values.where(values.isfinite(), -torch.inf)

    def _crown(self, hidden: Hidden, lines: Lines, best: Tensor, row: Tensor, other: Tensor) -> Tensor:
        wobble = self.wobble
        weight = self.w2[best] - self.w2[other]  # (P, H)
        slack = hidden.output_slack[row, best] + hidden.output_slack[row, other]
        slope = weight * torch.where(weight > 0, lines.lower_slope, lines.upper_slope)
        height = weight * torch.where(weight > 0, lines.lower_offset - wobble, lines.upper_offset + wobble)
        back = slope @ self.w1  # (P, F)
        at_box = torch.where(back > 0, back * hidden.features.lower[row], back * hidden.features.upper[row]).sum(1)
        linear = at_box + slope @ self.b1 - (slope.abs() * hidden.slack[row]).sum(1)
        own = OWN * (sum(self.w1.shape) + 16) * height.abs().sum(1)
        return linear + height.sum(1) - own + self.b2[best] - self.b2[other] - slack


def head_bounds(head: Head) -> HeadBounds:
    """Return the bounds of a head with its weights as they are now."""
    first, second = head.hidden, head.output
    return HeadBounds(first.weight.dtype, first.scaled_weight(), first.bias, second.scaled_weight(), second.bias)


@margins.register(Head)
def _(head: Head) -> BoundsMargins:
    own = head_bounds(head)
    return lambda box, best, tolerance: own.margins(_moved_apart(box, tolerance), best)


def _moved_apart(box: Box, tolerance: float) -> Box:
    """Convert a box of features to float64, and move its ends apart by `tolerance` and a little more."""
    lower, upper = box.lower.double(), box.upper.double()
    apart = tolerance * UP + (lower.abs() + upper.abs()) * 2.0**-52 * (tolerance > 0)
    return Box(lower - apart, upper + apart)


def worst_margins(head: Head, features: Tensor, y: Tensor, eps: float) -> Tensor:
    """Return upper bounds of z_j − z_y while each feature moves by ±eps: (B, M), 0 at the label.

    This is IBP with the last layer merged with the difference (eq. 9), without slack: for training.
    """
    first, second = head.hidden.scaled_weight(), head.output.scaled_weight()
    centre = linear(features, first, head.hidden.bias)  # (B, hidden)
    radius = eps * first.abs().sum(1)  # (hidden,)
    upper, lower = torch.tanh(centre + radius), torch.tanh(centre - radius)
    mid, half = (upper + lower) / 2, (upper - lower) / 2
    z = linear(mid, second, head.output.bias)  # (B, M)
    return z - z.gather(1, y[:, None]) + margin_reach(second, half, y)
