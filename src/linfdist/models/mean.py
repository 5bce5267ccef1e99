"""The mean of networks and of views of an image, certified as the one network that it is."""

import math
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Any, cast

from torch import Tensor, nn

from ..eps import round_up
from ..nn import Box, Flatten, Readout, Rounding, Stack, View
from ..nn.base import Shape, mean_rounding
from .base import PixelNet, network_rounding
from .composed import cache_lists, with_cached_lists

MOST_VIEWS = 64  # every member looks at each of them


class MeanLogits(Readout):
    """The mean of the logits of all members, over all views of an image: pixels (B, C·H·W) -> (B, classes).

    A mean moves by no more than its terms. So if every member is Lipschitz up to its logits, the mean is too, with the
    mean of their constants; and the mean of the members' bounds of a margin bounds the margin of the mean.
    """

    parts = (nn.ModuleList,)
    repeatable = True  # one addition after the other, for as many images as there are

    def __init__(self, members: Sequence[PixelNet], views: Sequence[str], shape: tuple[int, int, int]) -> None:
        super().__init__()
        self.members, self.views = nn.ModuleList(members), nn.ModuleList([View(view) for view in views])
        self.shape = shape

    @property
    def networks(self) -> list[PixelNet]:
        """The members."""
        return cast(list[PixelNet], list(self.members))

    @property
    def classes(self) -> int:
        return self.networks[0].classes

    @property
    def lipschitz(self) -> float | None:
        """The mean of the members' constants from pixels to logits, rounded up; None if a member has none."""
        constants = []
        for member in self.networks:
            own = member.readout.lipschitz
            if own is None:
                return None
            constants.append(Fraction(member.lipschitz) * Fraction(own))
        return round_up(sum(constants, Fraction(0)) / len(constants))

    def forward(self, x: Tensor, p: float | Tensor = math.inf) -> Tensor:
        return self.mean_of(member(image, p) for member, image in self.pairs(x.unflatten(1, self.shape)))

    def rounding(self, size: Fraction, unit: Fraction) -> Rounding:
        """Add the rounding of the sum of the members' logits to the mean of their own errors."""
        found = [network_rounding(member, size, unit) for member in self.networks]
        mean = mean_rounding(max(each.size for each in found), self.count, unit)
        error = sum((each.error for each in found), Fraction(0)) / len(found) + mean.error
        return Rounding(mean.size, max(mean.peak, *(each.peak for each in found)), error)

    def check(self, name: str) -> None:
        """Raise unless members and views are still valid: they can be exchanged after construction."""
        for view in self.views:
            if type(view) is not View:
                raise TypeError(f"{name}.views holds a {type(view).__name__}: only a View copies pixels")
        _common_shape(self.networks)

    def terms(self, shape: Shape) -> int:
        return len(self.views) * sum(member.terms() for member in self.networks)

    def elements(self, shape: Shape) -> int:
        """Count the largest tensor of a member, or the features of all members and views, which closer bounds keep."""
        kept = len(self.views) * sum(math.prod(each.body.shapes(each.shape)[-1]) for each in self.networks)
        return max(kept, *(member.elements() for member in self.networks))

    @property
    def count(self) -> int:
        """How many logits, of members and views, are averaged."""
        return len(self.members) * len(self.views)

    def pairs(self, images: Tensor) -> Iterator[tuple[PixelNet, Tensor]]:
        """Yield each member with each view of the images (B, C, H, W)."""
        for view in self.views:
            image = view(images)
            for member in self.networks:
                yield member, image

    def mean_of(self, logits: Iterator[Tensor]) -> Tensor:
        """Return the mean of `count` logits, added one after the other."""
        total = next(logits)
        for each in logits:
            total = total + each
        return total / self.count


@with_cached_lists.register(MeanLogits)
def _(readout: MeanLogits, box: Box) -> MeanLogits:
    """Let every member cache its lists: it sees images of [0, 1], whatever the view."""
    views = [cast(View, view).view for view in readout.views]
    return MeanLogits([cache_lists(each) for each in readout.networks], views, readout.shape)


class Mean(PixelNet):
    """The mean of several networks, and of several views of an image.

    logits(x) = mean over members and views of member(view(x))

    members: networks for images of the same shape, with the same classes, in the same precision: of any kind, with a
    head or without, also means. views: names of views, see `View`: "same", "mirror", "shift:1,0" and so on; every
    member sees all of them.

    The mean is one function of the image, and its certificate is a proof about that function. Taking the first
    certified answer of several networks is another function, which certificates of the single networks do not cover:
    within the ball, another network may be the first.
    """

    def __init__(self, members: Sequence[PixelNet], views: Sequence[str] = ("same",)) -> None:
        shape = _common_shape(members)
        if isinstance(views, str) or not isinstance(views, Sequence) or not views:
            raise ValueError(f"views must be a list of at least one view, such as ['same', 'mirror'], got {views!r}")
        if len(views) > MOST_VIEWS or len(set(views)) < len(views):
            raise ValueError(
                f"views must be at most {MOST_VIEWS} different ones, got {len(views)}: {list(views)!r:.60}"
            )
        super().__init__(shape, None)
        self.body = Stack(Flatten())
        self.mean = MeanLogits(members, views, shape)
        for view in self.mean.views:
            cast(View, view).output_shape(shape)
        if not any(member.training for member in members):
            self.eval()

    @property
    def readout(self) -> Readout:
        return self.mean

    @property
    def config(self) -> dict[str, Any]:  # type: ignore[override]
        """The configurations of its members, and its views; empty if a member has none."""
        members = [member.config for member in self.members]
        views = [cast(View, view).view for view in self.mean.views]
        return {"class": "Mean", "members": members, "views": views} if all(members) else {}

    @property
    def members(self) -> list[PixelNet]:
        """The networks whose mean this is."""
        return self.mean.networks


def _common_shape(members: Sequence[PixelNet]) -> tuple[int, int, int]:
    """Return the shape of all members' images; TypeError or ValueError unless these are networks that agree."""
    if isinstance(members, PixelNet) or not isinstance(members, Sequence) or not members:
        raise ValueError(
            f"members must be a list of at least one network, got {type(members).__name__} {members!r:.60}"
        )
    for place, member in enumerate(members):
        if not isinstance(member, PixelNet):
            raise TypeError(
                f"member {place} is a {type(member).__name__}, but a mean is one of networks of linfdist.models"
            )
        if any(member is other for other in members[:place]):
            raise ValueError(f"member {place} is a network that is already a member: give every member once")
        for what, of in _AGREE.items():
            first, here = of(members[0]), of(member)
            if first != here:
                raise ValueError(f"members must agree in their {what}: member 0 has {first}, member {place} has {here}")
    return members[0].shape


_AGREE: dict[str, Callable[[PixelNet], object]] = {
    "shape of images": lambda member: tuple(member.shape),
    "number of classes": lambda member: member.classes,
    "precision": lambda member: member.any_tensor.dtype,
    "device": lambda member: member.any_tensor.device,
}
