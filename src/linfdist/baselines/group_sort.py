"""Group Sort networks (Anil et al., ICML 2019): linear layers of norm 1, and sorting in place of ReLUs."""

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import partial

import torch
from torch import Tensor

from ..models.base import PixelNet, check_sizes, config_of, first_layers
from ..nn import Box, LipschitzModule, Readout, Rounding, Stack
from ..nn.base import Shape
from .networks import check_layers, hidden_layers
from .scores import Scores


class GroupSort(LipschitzModule):
    """Sort each group of neighbouring channels, at each place; in pairs, that is MaxMin. No rounding touches it.

    x (B, C, ...) -> same shape, with C a multiple of `group`. No number moves by more than the one that moves most.
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
        """The same of both ends: no sorted number falls if some number rises."""
        lower, upper = (self._groups(side) for side in box)
        unknown = 0.0 * (lower + upper).sum(2)  # NaN where a bound is not finite, which says nothing of its group
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
        """ValueError if there is a channel without a whole group."""
        if shape[0] % self.group:
            raise ValueError(f"{shape[0]} channels cannot be sorted in groups of {self.group}: need a multiple of it")
        return shape

    def rounding(self, size: Fraction, unit: Fraction) -> Rounding:
        return Rounding.of(size, 0, unit)

    def extra_repr(self) -> str:
        return f"{self.group}"


class GroupSortNet(PixelNet):
    """As `ReLUNet`, with sorted groups of `group` channels or neurons in place of ReLUs.

    Its Lipschitz constant is computed from its weights, whatever these are. `methods.GroupSortHinge` trains it, and
    keeps it at 1/std.
    """

    def __init__(
        self,
        shape: Sequence[int],
        classes: int,
        mean: Sequence[float],
        std: float,
        convolutions: Sequence[Sequence[int]] = (),
        hidden: Sequence[int] = (),
        group: int = 2,
        crop: int | None = None,
    ) -> None:
        check_layers(convolutions, hidden)
        super().__init__(check_sizes(shape, mean, crop, classes=classes), crop)
        self.config = {**config_of(GroupSortNet, locals()), "class": "baselines.GroupSortNet"}
        self.config["convolutions"] = [list(each) for each in convolutions]
        bend = partial(GroupSort, group)
        layers, features = hidden_layers((shape[0], *self.size), convolutions, hidden, bend)
        self.body = Stack(*first_layers(mean, std, crop), *layers)
        self.body.output_shape((shape[0], *self.size))  # ValueError if groups do not come out even
        self.scores = Scores(features, classes)

    @property
    def readout(self) -> Readout:
        return self.scores


@torch.no_grad()
def project_rows(weight: Tensor) -> None:
    """Move each weight[k] to the nearest one with ℓ1 norm at most 1, in place; rounding may leave it a little above.

    That is sign(w) max(|w| − t, 0), with the t for which the norm is 1 (Michelot, 1986): t from all entries, then from
    those that are left above it, until none falls out any more. Sizes are counted from the largest one, which is always
    left, so that weights of any size are projected well.
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
