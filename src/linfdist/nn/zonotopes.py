"""Zonotopes on their way from the pixels to the features: what the layers that map them share."""

from collections.abc import Callable

import torch
from torch import Tensor

from .base import Box, Forms, Zonotope
from .forms import BLOCK, LARGEST, OWN, UNDERFLOW
from .rounding import FLUSHED, UP, widened


def zonotope_of(box: Box, room: int, dtype: torch.dtype, worth: Tensor | None = None) -> Zonotope:
    """A box (b, *shape) as a zonotope with one error term for each coordinate; where there is no room for all of them,
    for those that are `worth` (b, *shape) most, or else for the widest ones.
    """
    lower, upper = (side.to(dtype) for side in box)
    centre = (lower + upper) / 2
    reach = torch.maximum(upper - centre, centre - lower) * UP + flushed(box)
    none = centre.new_empty(len(centre), 0, *centre.shape[1:])
    return with_terms(Zonotope(centre, none, reach, room), largest_of(reach if worth is None else worth, room))


def flushed(box: Box) -> float:
    """More than flushing denormal numbers can do to a value, in the precision of the box and in all higher ones."""
    return FLUSHED * torch.finfo(box.lower.dtype).tiny


def reach_of(zonotope: Zonotope) -> Tensor:
    """(b, *shape): how far points are from the centre, at most and up to rounding."""
    return torch.linalg.vector_norm(zonotope.terms, ord=1, dim=1) + zonotope.spread


def size_of(zonotope: Zonotope) -> Tensor:
    """(b, *shape): bounds of |centre| + Σ|terms| + spread, up to rounding; no gradient."""
    with torch.no_grad():
        return reach_of(zonotope) + zonotope.centre.abs()


def cut(box: Box, zonotope: Zonotope, bare: bool = False) -> Box:
    """The part of a box in which the zonotope can lie; with `bare`, without slack: for training, which proves nothing.

    The sum of K terms errs by at most K 2⁻⁵³ of itself: OWN times K outweighs it.
    """
    reach = reach_of(zonotope)
    found = Box(zonotope.centre - reach, zonotope.centre + reach)
    if not bare:
        slack = OWN * (zonotope.terms.shape[1] + 64) * size_of(zonotope)
        found = widened(*found, slack, box.lower.dtype)
    return Box(torch.maximum(box.lower, found.lower), torch.minimum(box.upper, found.upper))


def mapped(
    zonotope: Zonotope, linear: Callable[[Tensor], Tensor], constant: Tensor, spread: Tensor, slack: Tensor, few: int
) -> Zonotope:
    """The zonotope of T x + t + δ. linear: T, as computed for up to `few` samples at a time; constant: t; spread: |T|
    times the spread, as computed; slack: (b, *shape), bounds of |δ| and of what is lost in computing all of this.
    """
    many = zonotope.terms.flatten(0, 1)
    terms = torch.cat([linear(part) for part in many.split(max(1, few))]).unflatten(0, zonotope.terms.shape[:2])
    centre = torch.cat([linear(part) for part in zonotope.centre.split(max(1, few))]) + constant
    return zonotope._replace(centre=centre, terms=terms, spread=(spread + slack) * UP)


def largest_of(worth: Tensor, room: int) -> Tensor:
    """(b, *shape) bool: the coordinates that are worth most in each sample, up to `room` of them; none that is 0."""
    flat = worth.detach().flatten(1)
    place = flat.topk(min(max(room, 0), flat.shape[1]), dim=1, sorted=False).indices
    return (torch.zeros_like(flat, dtype=torch.bool).scatter(1, place, True) & (flat != 0)).view_as(worth)


def with_terms(zonotope: Zonotope, own: Tensor) -> Zonotope:
    """The same zonotope, where new error terms take over the spread of the coordinates `own` (b, *shape): bool."""
    centre, terms, spread, room = zonotope
    count = int(own.flatten(1).sum(1).amax())
    place = own.flatten(1).byte().topk(count, dim=1).indices  # (b, count), where samples with fewer have some others
    height = spread.where(own, 0.0).flatten(1).gather(1, place)
    fresh = height.new_zeros(*place.shape, spread[0].numel()).scatter(2, place[:, :, None], height[:, :, None])
    terms = torch.cat([terms, fresh.unflatten(2, spread.shape[1:])], dim=1)
    return Zonotope(centre, terms, spread.where(~own, 0.0), room)


def lowest_over(forms: Forms, zonotope: Zonotope) -> Tensor:
    """Lower bounds (P,) of forms over zonotopes (b, *shape): as many forms for each sample, one sample after the other.

    a·c + o − Σ|a·tₖ| − |a|·s. Sums have as many terms as there are coordinates, and K of them are added up.
    """
    weight = forms.weight.flatten(1).unflatten(0, (len(zonotope.centre), -1))  # (b, p, F)
    swing = (weight @ zonotope.terms.flatten(2).transpose(1, 2)).abs().sum(2)  # (b, p)
    middle = (weight @ zonotope.centre.flatten(1)[:, :, None])[:, :, 0]
    spread = (weight.abs() @ zonotope.spread.flatten(1)[:, :, None])[:, :, 0]
    with torch.no_grad():
        furthest = size_of(zonotope).flatten(1)
        furthest = furthest.where(furthest < LARGEST, torch.nan)
        size = (weight.abs() @ furthest[:, :, None])[:, :, 0].flatten() + forms.offset.abs()
        lost = OWN * (weight.shape[2] + zonotope.terms.shape[1] + 64) * size + UNDERFLOW
    return (middle - swing - spread).flatten() + forms.offset - lost


def samples_at_once(elements: int) -> int:
    """How many samples go through a layer at once, if so many numbers are computed for one."""
    return max(1, BLOCK // elements)
