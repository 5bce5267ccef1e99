"""The bend of conventional networks, and the lines that enclose it."""

import math
from fractions import Fraction

import torch
from torch import Tensor

from ..nn import Box, Forms, LipschitzModule, Rounding, Zonotope
from ..nn.base import Shape, Windowed
from ..nn.forms import OWN, UNDERFLOW
from ..nn.rounding import UP
from ..nn.zonotopes import flushed, largest_of, size_of, with_terms


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
        above, height = self.band(Box(lower, upper))
        below = above if forms.parallel else above.where(above * (1 - above) == 0, (above > 0.5).to(dtype))
        up, down = forms.weight.clamp(min=0.0), forms.weight.clamp(max=0.0)
        weight = up * below[forms.row] + down * above[forms.row]
        moved = (down * height[forms.row]).flatten(1).sum(1)
        with torch.no_grad():
            furthest = torch.maximum(lower.abs(), upper.abs())
            terms = OWN * (weight[0].numel() + 64) if len(weight) else 0.0
            lost = terms * (moved.abs() + forms.offset.abs()) + UNDERFLOW
            lost = lost + OWN * (weight.abs() * furthest[forms.row]).flatten(1).sum(1)  # of the products above
            lost = lost + flushed(box) * forms.weight.abs().flatten(1).sum(1)  # inputs outside of the box
        return forms._replace(weight=weight, offset=forms.offset + moved - lost)

    def windowed(self, shape: Shape) -> Windowed:
        return Windowed(self)

    def forward_zonotope(self, zonotope: Zonotope, box: Box) -> Zonotope:
        """y = s x + t (1 + η) / 2 with |η| <= 1 and s, t as above (DeepZ, Singh et al., 2018): η is a new error term.

        Where there is no room for one, it goes to the spread, which only adds up: there the slope is 0, a plain
        interval, or 1, whichever leaves less (hSwitch, Mirman et al., 2018).
        """
        lower, upper = (side.to(zonotope.centre.dtype) for side in box)
        slope, height = self.band(Box(lower, upper))
        own = largest_of(height, zonotope.room - zonotope.terms.shape[1])
        slope = slope.where(own | (height == 0), (slope > 0.5).to(slope))
        height = highest(slope, lower, upper)
        with torch.no_grad():
            lost = OWN * (slope * size_of(zonotope) + height) + flushed(box)
        centre, terms = slope * zonotope.centre + height / 2, slope[:, None] * zonotope.terms
        spread = (slope * zonotope.spread + height / 2 + lost) * UP
        return with_terms(zonotope._replace(centre=centre, terms=terms, spread=spread), own)

    def band(self, box: Box) -> tuple[Tensor, Tensor]:
        """The chord of each ReLU, and its height; NaN, which proves nothing, if an end is not finite."""
        lower, upper = box
        mixed = (lower < 0) & (upper > 0)
        slope = torch.where(mixed, upper / (upper - lower).where(mixed, 1.0), (lower >= 0).to(lower.dtype))
        slope = slope + 0.0 * (lower + upper)
        return slope, highest(slope, lower, upper)


def highest(slope: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """Bounds of max(x, 0) − slope x over [lower, upper], for a slope of [0, 1]; 0 where the sign of x is known."""
    height = torch.maximum(-slope * lower, (1 - slope) * upper).clamp(min=0.0) * UP
    return height.where((lower < 0) & (upper > 0), 0.0)
