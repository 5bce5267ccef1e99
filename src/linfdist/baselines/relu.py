"""The bend of conventional networks, and the lines that enclose it."""

import math
from fractions import Fraction

import torch
from torch import Tensor

from ..nn import Box, Forms, LipschitzModule, Rounding
from ..nn.base import Shape
from ..nn.forms import OWN, UNDERFLOW
from ..nn.rounding import FLUSHED, UP


def chord(box: Box) -> tuple[Tensor, Tensor]:
    """The slope s and the height t of the lowest line with max(x, 0) <= s x + t on the box; see `ReLU.pull_back`."""
    lower, upper = box
    mixed = (lower < 0) & (upper > 0)
    slope = torch.where(mixed, upper / (upper - lower).where(mixed, 1.0), (lower >= 0).to(lower.dtype))
    slope = slope + 0.0 * (lower + upper)  # bounds that are not finite prove nothing
    height = torch.maximum(-slope * lower, (1 - slope) * upper).clamp(min=0.0) * UP
    return slope, height.where(mixed, 0.0)


class ReLU(LipschitzModule):
    """y = max(x, 0), which no rounding touches. x of any shape -> same shape."""

    repeatable = True
    bends = True
    lipschitz = 1.0

    def forward(self, x: Tensor, p: float | Tensor = math.inf) -> Tensor:
        return x.relu()

    def forward_box(self, box: Box) -> Box:
        return Box(box.lower.relu(), box.upper.relu())

    def output_shape(self, shape: Shape) -> Shape:
        return shape

    def rounding(self, size: Fraction, unit: Fraction) -> Rounding:
        return Rounding.of(size, 0, unit)

    def pull_back(self, forms: Forms, box: Box) -> Forms:
        """Where a form's weight is positive, y >= α x; where it is negative, y <= s x + t.

        On [l, u] with l < 0 < u, any α and s of [0, 1] will do, with t the largest value of y − s x, which is convex
        and so attained at an end: a slope that is rounded costs tightness, never soundness. Else y is 0 or x, exactly.
        """
        dtype = forms.weight.dtype
        lower, upper = (side.to(dtype) for side in box)
        above, height = chord(Box(lower, upper))
        below = above if forms.parallel else above.where(above * (1 - above) == 0, (above > 0.5).to(dtype))
        up, down = forms.weight.clamp(min=0.0), forms.weight.clamp(max=0.0)
        weight = up * below[forms.row] + down * above[forms.row]
        moved = (down * height[forms.row]).flatten(1).sum(1)
        with torch.no_grad():
            furthest = torch.maximum(lower.abs(), upper.abs())
            terms = OWN * (weight[0].numel() + 64) if len(weight) else 0.0
            lost = terms * (moved.abs() + forms.offset.abs()) + UNDERFLOW
            lost = lost + OWN * (weight.abs() * furthest[forms.row]).flatten(1).sum(1)  # of the products above
            flushed = FLUSHED * torch.finfo(box.lower.dtype).tiny
            lost = lost + flushed * forms.weight.abs().flatten(1).sum(1)  # inputs outside of the box
        return forms._replace(weight=weight, offset=forms.offset + moved - lost)
