"""Linear forms on their way from the logits back to the pixels: what the layers that pull them back share."""

import math

import torch
from torch import Tensor

from .base import Box, Forms, Shape

OWN = 2.0**-50  # times the number of terms of a sum: eight times what float64 can lose in it
UNDERFLOW = 2.0**-850  # more than float64 can lose by underflow, in so many sums of terms below LARGEST as there are
LARGEST = 2.0**127  # of the values that forms are taken of: bounds beyond it prove nothing
BLOCK = 1 << 19  # elements of the largest tensor of forms, unless one form is longer: 4 MB, which caches can hold


def forms_of(weight: Tensor, row: Tensor, parallel: bool = False) -> Forms:
    """The forms Σ weight[k] · y of samples row[k]."""
    return Forms(weight, weight.new_zeros(len(weight)), row, parallel)


def both_signs(place: Tensor, row: Tensor, shape: Shape, parallel: bool = False) -> Forms:
    """The forms y[place[k]] of samples row[k], y being flattened, and then their negatives: 2 P forms in float64."""
    weight = torch.zeros(len(place), math.prod(shape), dtype=torch.float64, device=place.device)
    weight.scatter_(1, place[:, None], 1.0)
    return forms_of(torch.cat([weight, -weight]).unflatten(1, shape), torch.cat([row, row]), parallel)


def both_ends(lowest: Tensor) -> Box:
    """From lower bounds (2 P,) of the forms of `both_signs` to bounds (P,) of the coordinates from both sides."""
    lower, negative = lowest.chunk(2)
    return Box(lower, -negative)


def leads_of(best: Tensor, row: Tensor, other: Tensor, classes: int, dtype: torch.dtype) -> Tensor:
    """Forms (P, classes) of logits: z[best[row[k]]] − z[other[k]]."""
    place = torch.arange(len(row), device=row.device)
    weight = torch.zeros(len(row), classes, dtype=dtype, device=row.device)
    weight[place, best[row]] = 1.0
    weight[place, other] -= 1.0
    return weight


def times(forms: Forms, vector: Tensor) -> Tensor:
    """Σ weight[k] · vector for each form: (P,). vector: of one sample's shape, or broadcastable to it."""
    return (forms.weight * vector).flatten(1).sum(1)


def lowered(forms: Forms, weight: Tensor, moved: Tensor, size: Tensor, executed: Tensor) -> Forms:
    """Forms with these weights in place of those of `forms`, and offsets that are `moved` by (P,) and lowered by what
    rounding can do.

    For a layer that computes y = T x + t + δ. size, executed: (b, *shape), bounds of |T| |x| + |t| and of |δ| over the
    box. weight: forms.weight · T, and moved: forms.weight · t, both as computed here. A sum of n products errs by at
    most n 2⁻⁵³ of the sum of their magnitudes, which is |forms.weight| · size, whether it is the sum over the layer's
    outputs, in each weight, or that over all outputs, in `moved` and here: OWN times n outweighs all of them.
    """
    with torch.no_grad():
        heavy = forms.weight.abs()
        own = OWN * (heavy[0].numel() + weight[0].numel() + 64) if len(heavy) else 0.0
        slack = (heavy * (executed + own * size)[forms.row]).flatten(1).sum(1) * (1 + 2.0**-20)
        lost = OWN * (forms.offset.abs() + moved.abs() + slack) + UNDERFLOW
    return forms._replace(weight=weight, offset=forms.offset + moved - slack - lost)


def lowest(forms: Forms, box: Box) -> Tensor:
    """Lower bounds (P,) of forms over the samples of a box (b, *shape): each takes the end of the box that is worse."""
    lower, upper = (side.to(forms.weight.dtype).flatten(1) for side in box)
    weight = forms.weight.flatten(1)
    ends = torch.where(weight > 0, lower[forms.row], upper[forms.row])
    with torch.no_grad():
        size = (weight * ends).abs().sum(1)
        lost = OWN * (weight.shape[1] + 64) * (size + forms.offset.abs()) + UNDERFLOW
    return (weight * ends).sum(1) + forms.offset - lost
