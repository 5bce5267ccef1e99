"""The nonlinearities of conventional networks: ReLU with the lines that enclose it, and sorted groups."""

import math
from fractions import Fraction

import torch
from torch import Tensor

from ..bounds.forms import OWN, UNDERFLOW, Forms, pull_back
from ..bounds.interval import relaxation
from ..bounds.windows import pointwise, windowed
from ..bounds.zonotope import Zonotope, flushed, forward_zonotope, largest_of, size_of, with_generators
from ..models.composed import arguments_of
from ..nn import Box, LipschitzModule, Rounding
from ..nn.base import UP, Shape


class ReLU(LipschitzModule):
    """y = max(x, 0), computed without rounding. x of any shape -> same shape."""

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
    """Bound max(x, 0) − slope x from above over [lower, upper], for a slope of [0, 1]; 0 where x has a known sign."""
    height = torch.maximum(-slope * lower, (1 - slope) * upper).clamp(min=0.0) * UP
    return height.where((lower < 0) & (upper > 0), 0.0)


windowed.register(ReLU)(pointwise)
arguments_of.register(ReLU)(lambda layer: {})


@relaxation.register(ReLU)
def _(layer: ReLU, box: Box) -> tuple[Tensor, Tensor]:
    """Return the slope of each ReLU's chord, and its height; NaN, which proves nothing, if an end is not finite."""
    lower, upper = box
    mixed = (lower < 0) & (upper > 0)
    slope = torch.where(mixed, upper / (upper - lower).where(mixed, 1.0), (lower >= 0).to(lower.dtype))
    slope = slope + 0.0 * (lower + upper)
    return slope, highest(slope, lower, upper)


@pull_back.register(ReLU)
def _(layer: ReLU, forms: Forms, box: Box) -> Forms:
    """Use y >= α x where a form's weight is positive, and y <= s x + t where it is negative.

    On [l, u] with l < 0 < u, any α and s of [0, 1] are valid, with t the largest value of y − s x. This is convex, so
    it is largest at an end. Rounding a slope costs tightness, never soundness. Otherwise y is exactly 0 or x.
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
        lost = lost + OWN * (weight.abs() * furthest[forms.row]).flatten(1).sum(1)  # rounding of the products above
        lost = lost + flushed(box) * forms.weight.abs().flatten(1).sum(1)  # inputs outside the box
    return forms._replace(weight=weight, offset=forms.offset + moved - lost)


@forward_zonotope.register(ReLU)
def _(layer: ReLU, zonotope: Zonotope, box: Box) -> Zonotope:
    """Map x to s x + t (1 + η) / 2 with |η| <= 1 and s, t as above (DeepZ, Singh et al., 2018): η is a new generator.

    Where there is no room for a generator, η goes to the radius, which only adds up. There the slope is 0, a plain
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


class GroupSort(LipschitzModule):
    """Sort each group of neighbouring channels at each place, without rounding; groups of 2 are MaxMin.

    x (B, C, ...) -> same shape, with C a multiple of `group`. No output moves by more than the input that moves most.
    """

    repeatable = True
    lipschitz = 1.0

    def __init__(self, group: int = 2) -> None:
        super().__init__()
        if type(group) is not int or group < 2:
            raise ValueError(f"group = {group!r}: must be a whole number of at least 2, the channels that are sorted")
        self.group = group

    def forward(self, x: Tensor, p: float | Tensor = math.inf) -> Tensor:
        return self._sorted(self._groups(x))

    def forward_box(self, box: Box) -> Box:
        """Sort both ends: sorting is monotone, so no sorted number falls if some number rises."""
        lower, upper = (self._groups(side) for side in box)
        unknown = 0.0 * (lower + upper).sum(2)  # NaN where a bound is not finite: its whole group is unknown
        spread = unknown.repeat_interleave(self.group, 1)
        return Box(self._sorted(lower) + spread, self._sorted(upper) + spread)

    def _groups(self, x: Tensor) -> Tensor:
        return x.unflatten(1, (-1, self.group))

    def _sorted(self, groups: Tensor) -> Tensor:
        if self.group > 2:
            return groups.sort(2).values.flatten(1, 2)
        one, other = groups.unbind(2)  # several times as fast
        return torch.stack([torch.minimum(one, other), torch.maximum(one, other)], 2).flatten(1, 2)

    def output_shape(self, shape: Shape) -> Shape:
        """Return the same shape; raise ValueError unless the channels are a multiple of `group`."""
        if shape[0] % self.group:
            raise ValueError(f"{shape[0]} channels cannot be sorted in groups of {self.group}: need a multiple of it")
        return shape

    def rounding(self, size: Fraction, unit: Fraction) -> Rounding:
        return Rounding.of(size, 0, unit)

    def extra_repr(self) -> str:
        return f"{self.group}"


arguments_of.register(GroupSort)(lambda layer: {"group": layer.group})


@torch.no_grad()
def project_rows(weight: Tensor) -> None:
    """Move each weight[k] to the nearest one with ℓ1 norm at most 1, in place; rounding may leave it a little above.

    That is sign(w) max(|w| − t, 0), with the t for which the norm is 1 (Michelot, 1986). t is computed from all
    entries, then from those that remain above it, until no more fall below it. Magnitudes are measured from the largest
    one, which always remains, so that weights of any magnitude are projected accurately.
    """
    size = weight.flatten(1).abs()
    below = size - size.amax(1, keepdim=True)
    left, count = torch.ones_like(size, dtype=torch.bool), size.numel() + 1
    while int(left.sum()) < count:
        count = int(left.sum())
        threshold = (below.where(left, 0.0).sum(1, keepdim=True) - 1) / left.sum(1, keepdim=True)
        left &= below > threshold
    outside = size.sum(1, keepdim=True) > 1
    shrunk = size.where(~outside, (below - threshold).clamp(min=0.0))
    weight.copy_(shrunk.view_as(weight) * weight.sign())
