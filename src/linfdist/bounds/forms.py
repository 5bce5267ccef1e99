"""Linear forms, pulled back from the logits to the pixels, layer by layer (CROWN, Fast-Lin)."""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from ..nn import Box, CenterCrop, Flatten, LipschitzModule, Logits, Normalize
from ..nn.base import FLUSHED, Handlers, Shape, gamma
from ..nn.pixels import centred

OWN = 2.0**-50  # relative slack per term of a sum: eight times the rounding error of float64
UNDERFLOW = 2.0**-850  # exceeds the total underflow error of float64 in all sums of terms below LARGEST
LARGEST = 2.0**127  # limit of the values that forms can bound: bounds beyond it prove nothing
BLOCK = 1 << 19  # elements of the largest tensor of forms, unless one form is longer: 4 MB, which fits into caches


class Forms(NamedTuple):
    """P linear forms, each of one sample of a batch: offset[k] + Σ weight[k] · y, for y of sample row[k].

    weight: (P, *shape); offset: (P,); row: (P,) int64. parallel: the slope of the line below a ReLU whose sign is
    unknown. True: the slope of the line above it (Fast-Lin). False: 0 or 1, whichever leaves less area (CROWN).
    """

    weight: Tensor
    offset: Tensor
    row: Tensor
    parallel: bool = False


def forms_of(weight: Tensor, row: Tensor, parallel: bool = False) -> Forms:
    """Return forms with offset 0: form k is Σ weight[k] · y, for the y of sample row[k]."""
    return Forms(weight, weight.new_zeros(len(weight)), row, parallel)


def both_signs(place: Tensor, row: Tensor, shape: Shape, parallel: bool = False) -> Forms:
    """Select coordinates of the flattened y: forms y[place[k]] of samples row[k], then their negatives.

    There are 2 P forms, in float64.
    """
    weight = torch.zeros(len(place), math.prod(shape), dtype=torch.float64, device=place.device)
    weight.scatter_(1, place[:, None], 1.0)
    return forms_of(torch.cat([weight, -weight]).unflatten(1, shape), torch.cat([row, row]), parallel)


def both_ends(lowest: Tensor) -> Box:
    """Turn lower bounds (2 P,) of the forms of `both_signs` into bounds (P,) of the coordinates from both sides."""
    lower, negative = lowest.chunk(2)
    return Box(lower, -negative)


def margin_weights(best: Tensor, row: Tensor, other: Tensor, classes: int, dtype: torch.dtype) -> Tensor:
    """Return the weights (P, classes) of the margins z[best[row[k]]] − z[other[k]], as forms of the logits."""
    place = torch.arange(len(row), device=row.device)
    weight = torch.zeros(len(row), classes, dtype=dtype, device=row.device)
    weight[place, best[row]] = 1.0
    weight[place, other] -= 1.0
    return weight


def times(forms: Forms, vector: Tensor) -> Tensor:
    """Return Σ weight[k] · vector for each form: (P,). vector: of one sample's shape, or broadcastable to it."""
    return (forms.weight * vector).flatten(1).sum(1)


def lowered(forms: Forms, weight: Tensor, moved: Tensor, size: Tensor, executed: Tensor) -> Forms:
    """Replace the weights of forms, add `moved` (P,) to their offsets, and lower these by all that rounding can do.

    This pulls forms back through a layer that computes y = T x + t + δ. size, executed: (b, *shape), bounds of
    |T| |x| + |t| and of |δ| over the box. weight: forms.weight · T, and moved: forms.weight · t, both as computed here.

    A sum of n products errs by at most n 2⁻⁵³ of the sum of their magnitudes, which is |forms.weight| · size. That
    holds for the sum over the layer's outputs, in each weight, and for the sums over all outputs, in `moved` and here:
    OWN times n outweighs all of them.
    """
    with torch.no_grad():
        heavy = forms.weight.abs()
        own = OWN * (heavy[0].numel() + weight[0].numel() + 64) if len(heavy) else 0.0
        slack = (heavy * (executed + own * size)[forms.row]).flatten(1).sum(1) * (1 + 2.0**-20)
        lost = OWN * (forms.offset.abs() + moved.abs() + slack) + UNDERFLOW
    return forms._replace(weight=weight, offset=forms.offset + moved - slack - lost)


def lowest(forms: Forms, box: Box) -> Tensor:
    """Bound forms from below over the samples of a box (b, *shape): (P,). Each weight meets the worse end."""
    lower, upper = (side.to(forms.weight.dtype).flatten(1) for side in box)
    weight = forms.weight.flatten(1)
    ends = torch.where(weight > 0, lower[forms.row], upper[forms.row])
    with torch.no_grad():
        size = (weight * ends).abs().sum(1)
        lost = OWN * (weight.shape[1] + 64) * (size + forms.offset.abs()) + UNDERFLOW
    return (weight * ends).sum(1) + forms.offset - lost


pull_back: Handlers[[Forms, Box], Forms] = Handlers(
    "linfdist.bounds.pull_back", "has no linear bounds, so method 'box' is the best there is for it"
)
"""pull_back(layer, forms, box) bounds linear forms of the outputs of a layer, or of a readout, from below by linear
forms of its inputs, over all inputs of the box.

For every x of sample row[k] of the box, form k of the result at x is at most form k of `forms` at `forward(x)` as
computed, with its rounding. The arithmetic is done in the precision of the forms, and what it can lose is taken off the
offsets: float64 for proofs; for training, float32 will do. See docs/certificates.md.
"""


def pull_back_through(layers: Iterable[LipschitzModule], forms: Forms, boxes: Sequence[Box]) -> Forms:
    """Pull forms back through the first len(boxes) layers; each box bounds the inputs of its layer."""
    for layer, box in reversed(list(zip(layers, boxes, strict=False))):
        forms = pull_back(layer, forms, box)
    return forms


@pull_back.register(Logits)
def _(logits: Logits, forms: Forms, box: Box) -> Forms:
    return forms


@pull_back.register(Flatten)
def _(layer: Flatten, forms: Forms, box: Box) -> Forms:
    return forms._replace(weight=forms.weight.unflatten(1, box.lower.shape[1:]))


@pull_back.register(CenterCrop)
def _(layer: CenterCrop, forms: Forms, box: Box) -> Forms:
    """Give pixels outside the crop a weight of 0."""
    top, left = centred(box.lower.shape, layer.size)
    bottom, right = (side - start - layer.size for side, start in zip(box.lower.shape[-2:], (top, left), strict=True))
    return forms._replace(weight=pad(forms.weight, (left, right, top, bottom)))


@pull_back.register(Normalize)
def _(layer: Normalize, forms: Forms, box: Box) -> Forms:
    """Divide the weights by std."""
    dtype = forms.weight.dtype
    mean, std = layer.mean.to(dtype), layer.std.to(dtype)
    furthest = torch.maximum(box.lower.abs(), box.upper.abs()).to(dtype)
    size, executed = normalize_sizes(layer, furthest, torch.finfo(box.lower.dtype))
    return lowered(forms, forms.weight / std, times(forms, -mean / std), size, executed)


def normalize_sizes(layer: Normalize, furthest: Tensor, precision: torch.finfo) -> tuple[Tensor, Tensor]:
    """Bound (|x| + |mean|) / std for |x| <= furthest, and the distance of a computed output from the exact one.

    Two rounded operations err by γ₃ of the first bound.
    """
    mean, std = layer.mean.to(furthest.dtype), layer.std.to(furthest.dtype)
    size = (furthest + mean.abs()) / std
    return size, gamma(3, precision.eps / 2) * size + FLUSHED * precision.tiny * (1 + 1 / std)
