"""Zonotopes of the pixels, pushed through the layers (DeepZ, Singh et al., 2018)."""

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from ..models import PixelNet
from ..nn import Box, CenterCrop, Flatten, LipschitzModule, Normalize
from ..nn.base import FLUSHED, UP, Handlers, widened
from .forms import BLOCK, LARGEST, OWN, UNDERFLOW, Forms, forms_of, lowest, margin_weights, normalize_sizes, pull_back
from .interval import bare_box, known, nonlinear
from .linear import ordinary

ELEMENTS = 1 << 25  # of the generators of a layer: 256 MB in float64; the computation takes a few times as much


class Zonotope(NamedTuple):
    """For each sample of a batch, all y with |y − centre − Σ e[k] generators[k]| <= radius for some |e[k]| <= 1.

    centre, radius: (b, *shape); generators: (b, K, *shape), which carry the correlations between coordinates. The
    radius is the interval part of a hybrid zonotope (Mirman et al., 2018): whatever each coordinate does on its own.
    room: the largest number of generators; what has no generator goes to the radius.
    """

    centre: Tensor
    generators: Tensor
    radius: Tensor
    room: int


def zonotope_of(box: Box, room: int, dtype: torch.dtype, worth: Tensor | None = None) -> Zonotope:
    """Return a box (b, *shape) as a zonotope with one generator for each coordinate.

    If there is no room for all of them, the coordinates that are `worth` (b, *shape) most have generators; if `worth`
    is None, the widest ones.
    """
    lower, upper = (side.to(dtype) for side in box)
    centre = (lower + upper) / 2
    reach = torch.maximum(upper - centre, centre - lower) * UP + flushed(box)
    none = centre.new_empty(len(centre), 0, *centre.shape[1:])
    return with_generators(Zonotope(centre, none, reach, room), largest_of(reach if worth is None else worth, room))


def flushed(box: Box) -> float:
    """Bound what flushing denormal numbers can do to a value, in the precision of the box and in all higher ones."""
    return FLUSHED * torch.finfo(box.lower.dtype).tiny


def reach_of(zonotope: Zonotope) -> Tensor:
    """Bound the distance of points from the centre, up to rounding: (b, *shape)."""
    return torch.linalg.vector_norm(zonotope.generators, ord=1, dim=1) + zonotope.radius


def size_of(zonotope: Zonotope) -> Tensor:
    """Return |centre| + Σ|generators| + radius, up to rounding and without a gradient: (b, *shape)."""
    with torch.no_grad():
        return reach_of(zonotope) + zonotope.centre.abs()


def cut(box: Box, zonotope: Zonotope, slack: bool = True) -> Box:
    """Return the part of a box in which the zonotope can lie; with slack=False, without slack for rounding (training).

    The sum of K terms errs by at most K 2⁻⁵³ of itself: OWN times K outweighs it.
    """
    reach = reach_of(zonotope)
    found = Box(zonotope.centre - reach, zonotope.centre + reach)
    if slack:
        lost = OWN * (zonotope.generators.shape[1] + 64) * size_of(zonotope)
        found = widened(*found, lost, box.lower.dtype)
    return Box(torch.maximum(box.lower, found.lower), torch.minimum(box.upper, found.upper))


def mapped(
    zonotope: Zonotope, linear: Callable[[Tensor], Tensor], constant: Tensor, radius: Tensor, slack: Tensor, few: int
) -> Zonotope:
    """Map a zonotope of x to the one of T x + t + δ.

    linear: T, as computed for up to `few` samples at a time; constant: t; radius: |T| times the radius, as computed;
    slack: (b, *shape), bounds of |δ| and of what is lost in computing all of this.
    """
    many = zonotope.generators.flatten(0, 1)
    generators = torch.cat([linear(part) for part in many.split(max(1, few))])
    generators = generators.unflatten(0, zonotope.generators.shape[:2])
    centre = torch.cat([linear(part) for part in zonotope.centre.split(max(1, few))]) + constant
    return zonotope._replace(centre=centre, generators=generators, radius=(radius + slack) * UP)


def largest_of(worth: Tensor, room: int) -> Tensor:
    """Mark the `room` coordinates of largest worth in each sample, except those of worth 0: (b, *shape) bool."""
    flat = worth.detach().flatten(1)
    place = flat.topk(min(max(room, 0), flat.shape[1]), dim=1, sorted=False).indices
    return (torch.zeros_like(flat, dtype=torch.bool).scatter(1, place, True) & (flat != 0)).view_as(worth)


def with_generators(zonotope: Zonotope, own: Tensor) -> Zonotope:
    """Replace the radius of the coordinates `own`, (b, *shape) bool, by new generators."""
    centre, generators, radius, room = zonotope
    count = int(own.flatten(1).sum(1).amax())
    place = own.flatten(1).byte().topk(count, dim=1).indices  # (b, count), filled up with others
    height = radius.where(own, 0.0).flatten(1).gather(1, place)
    fresh = height.new_zeros(*place.shape, radius[0].numel()).scatter(2, place[:, :, None], height[:, :, None])
    generators = torch.cat([generators, fresh.unflatten(2, radius.shape[1:])], dim=1)
    return Zonotope(centre, generators, radius.where(~own, 0.0), room)


def lowest_over(forms: Forms, zonotope: Zonotope) -> Tensor:
    """Bound forms from below (P,) over zonotopes (b, *shape); all samples have equally many forms, in their order.

    The bound is a·c + o − Σ|a·gₖ| − |a|·r. Sums have as many terms as there are coordinates, and K of them are added.
    """
    weight = forms.weight.flatten(1).unflatten(0, (len(zonotope.centre), -1))  # (b, p, F)
    swing = (weight @ zonotope.generators.flatten(2).transpose(1, 2)).abs().sum(2)  # (b, p)
    middle = (weight @ zonotope.centre.flatten(1)[:, :, None])[:, :, 0]
    around = (weight.abs() @ zonotope.radius.flatten(1)[:, :, None])[:, :, 0]
    with torch.no_grad():
        furthest = size_of(zonotope).flatten(1)
        furthest = furthest.where(furthest < LARGEST, torch.nan)
        size = (weight.abs() @ furthest[:, :, None])[:, :, 0].flatten() + forms.offset.abs()
        lost = OWN * (weight.shape[2] + zonotope.generators.shape[1] + 64) * size + UNDERFLOW
    return (middle - swing - around).flatten() + forms.offset - lost


def samples_at_once(elements: int) -> int:
    """Return how many samples go through a layer at once, if `elements` numbers are computed for each."""
    return max(1, BLOCK // elements)


forward_zonotope: Handlers[[Zonotope, Box], Zonotope] = Handlers(
    "linfdist.bounds.forward_zonotope", "does not map zonotopes, so method 'box' is the best there is for it"
)
"""forward_zonotope(layer, zonotope, box) maps a zonotope that holds the inputs of a layer to one that holds the
outputs, for inputs that lie in the box as well.

If x is in the box, and in the zonotope with error coefficients e, then `forward(x)` as computed, with its rounding, is
in the result with the same coefficients e, and any of those that are new. The arithmetic is done in the precision of
the zonotope, as in `pull_back`.
"""


def zonotope_and_box(
    layers: Iterable[LipschitzModule], zonotope: Zonotope, box: Box, slack: bool = True
) -> tuple[Zonotope, Box]:
    """Bound the outputs of the last layer by a zonotope and by a box.

    The box is cut down to the zonotope before each nonlinear layer, and after the last layer. With slack=False, boxes
    have no slack for rounding: for training.
    """
    for layer in layers:
        if nonlinear(layer):
            box = cut(box, zonotope, slack)
        zonotope = forward_zonotope(layer, zonotope, box)
        box = layer.forward_box(box) if slack else bare_box(layer, box)
    return zonotope, cut(box, zonotope, slack)


@forward_zonotope.register(Flatten)
def _(layer: Flatten, zonotope: Zonotope, box: Box) -> Zonotope:
    centre, generators, radius, room = zonotope
    return Zonotope(centre.flatten(1), generators.flatten(2), radius.flatten(1), room)


@forward_zonotope.register(CenterCrop)
def _(layer: CenterCrop, zonotope: Zonotope, box: Box) -> Zonotope:
    return Zonotope(layer(zonotope.centre), layer(zonotope.generators), layer(zonotope.radius), zonotope.room)


@forward_zonotope.register(Normalize)
def _(layer: Normalize, zonotope: Zonotope, box: Box) -> Zonotope:
    dtype = zonotope.centre.dtype
    mean, std = layer.mean.to(dtype), layer.std.to(dtype)
    size, executed = normalize_sizes(layer, size_of(zonotope), torch.finfo(box.lower.dtype))
    few = samples_at_once(zonotope.centre[0].numel())
    slack = executed + OWN * 64 * size
    return mapped(zonotope, lambda x: x / std, -mean / std, zonotope.radius / std, slack, few)


class ZonotopeBounds:
    """Lower bounds of z[best] − z[other] over boxes of pixels, of the network as executed.

    There are as many generators as memory allows; beyond that, the smallest ones are merged into intervals, which
    costs only tightness. Raises TypeError that names the layer if the network has one that does not map zonotopes.
    """

    def __init__(self, network: PixelNet) -> None:
        self.network = network
        shapes = network.body.shapes(network.shape)
        widest = max(math.prod(shape) for shape in shapes)
        inner = sum(math.prod(shape) for layer, shape in zip(network.body, shapes, strict=False) if nonlinear(layer))
        self.room = max(1, ELEMENTS // widest)
        self.few = max(1, ELEMENTS // (widest * (math.prod(network.shape) + inner)))  # images at once
        blank = network.any_tensor.new_zeros(1, *network.shape)
        self._margins(Box(blank, blank), blank.new_zeros(1, dtype=torch.int64))  # refuses other layers

    def margins(self, pixels: Box, best: Tensor) -> Tensor:
        """Bound z[best] − z[j] from below over the boxes: (b, classes) float64.

        The bound is infinity at the best class itself, and −infinity where nothing can be proved.
        pixels: (b, C, H, W), in the network's precision; best: (b,).
        """
        if not len(best):
            return torch.empty(0, self.network.classes, dtype=torch.float64, device=best.device)
        sides = zip(pixels.lower.split(self.few), pixels.upper.split(self.few), best.split(self.few), strict=True)
        apart = torch.cat([self._margins(Box(low, high), some) for low, high, some in sides])
        return known(apart, best)

    def _margins(self, pixels: Box, best: Tensor) -> Tensor:
        """Bound the margins (b, classes) of images that fit into memory together; about 0 at the best class itself."""
        zonotope = zonotope_of(pixels, self.room, torch.float64)
        zonotope, box = zonotope_and_box(self.network.body, zonotope, pixels)
        box, classes = ordinary(box), self.network.classes
        row = torch.arange(len(best), device=best.device).repeat_interleave(classes)
        other = torch.arange(classes, device=best.device).repeat(len(best))
        forms = forms_of(margin_weights(best, row, other, classes, torch.float64), row)
        forms = pull_back(self.network.readout, forms, box)
        return torch.fmax(lowest_over(forms, zonotope), lowest(forms, box)).unflatten(0, (len(best), classes))
