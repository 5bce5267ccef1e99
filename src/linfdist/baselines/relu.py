"""The nonlinearity of conventional networks, and the lines that enclose it."""

import math
from fractions import Fraction

import torch
from torch import Tensor

from ..bounds.forms import OWN, UNDERFLOW, Forms, pull_back
from ..bounds.interval import relaxation
from ..bounds.windows import pointwise, windowed
from ..bounds.zonotope import Zonotope, flushed, forward_zonotope, largest_of, size_of, with_generators
from ..nn import Box, LipschitzModule, Rounding
from ..nn.base import Shape
from ..nn.rounding import UP


class ReLU(LipschitzModule):
    """y = max(x, 0), which no rounding touches. x of any shape -> same shape."""

    repeatable = True
    lipschitz = 1.0

    def forward(self, x: Tensor, p: float | Tensor = math.inf) -> Tensor:
        return x.relu()

    def forward_box(self, box: Box) -> Box:
        return Box(box.lower.relu(), box.upper.relu())

    def output_shape(self, shape: Shape) -> Shape:
        return shape

    def rounding(self, size: Fraction, unit: Fraction) -> Rounding:
        return Rounding.of(size, 0, unit)


def highest(slope: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """Bounds of max(x, 0) − slope x over [lower, upper], for a slope of [0, 1]; 0 where the sign of x is known."""
    height = torch.maximum(-slope * lower, (1 - slope) * upper).clamp(min=0.0) * UP
    return height.where((lower < 0) & (upper > 0), 0.0)


windowed.register(ReLU)(pointwise)


@relaxation.register(ReLU)
def _(layer: ReLU, box: Box) -> tuple[Tensor, Tensor]:
    """The chord of each ReLU, and its height; NaN, which proves nothing, if an end is not finite."""
    lower, upper = box
    mixed = (lower < 0) & (upper > 0)
    slope = torch.where(mixed, upper / (upper - lower).where(mixed, 1.0), (lower >= 0).to(lower.dtype))
    slope = slope + 0.0 * (lower + upper)
    return slope, highest(slope, lower, upper)


@pull_back.register(ReLU)
def _(layer: ReLU, forms: Forms, box: Box) -> Forms:
    """Where a form's weight is positive, y >= α x; where it is negative, y <= s x + t.

    On [l, u] with l < 0 < u, any α and s of [0, 1] will do, with t the largest value of y − s x, which is convex
    and so attained at an end: a slope that is rounded costs tightness, never soundness. Else y is 0 or x, exactly.
    """
    dtype = forms.weight.dtype
    lower, upper = (side.to(dtype) for side in box)
    above, height = relaxation(layer, Box(lower, upper))
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


@forward_zonotope.register(ReLU)
def _(layer: ReLU, zonotope: Zonotope, box: Box) -> Zonotope:
    """y = s x + t (1 + η) / 2 with |η| <= 1 and s, t as above (DeepZ, Singh et al., 2018): η is a new generator.

    Where there is no room for one, it goes to the radius, which only adds up: there the slope is 0, a plain
    interval, or 1, whichever leaves less (hSwitch, Mirman et al., 2018).
    """
    lower, upper = (side.to(zonotope.centre.dtype) for side in box)
    slope, height = relaxation(layer, Box(lower, upper))
    own = largest_of(height, zonotope.room - zonotope.generators.shape[1])
    slope = slope.where(own | (height == 0), (slope > 0.5).to(slope))
    height = highest(slope, lower, upper)
    with torch.no_grad():
        lost = OWN * (slope * size_of(zonotope) + height) + flushed(box)
    centre, generators = slope * zonotope.centre + height / 2, slope[:, None] * zonotope.generators
    radius = (slope * zonotope.radius + height / 2 + lost) * UP
    return with_generators(zonotope._replace(centre=centre, generators=generators, radius=radius), own)
