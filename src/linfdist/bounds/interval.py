"""Interval bounds (IBP): from boxes of pixels through the layers to the margins of the logits, z[best] − z[j].

Bounds for proofs have slack for rounding; those for training have none.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, cast

import torch
from torch import Tensor

from ..models.base import flush_error, rounding_error
from ..models.mean import MeanLogits
from ..nn import Box, Handlers, LipschitzModule, Readout, View
from ..nn.base import FLUSHED, UP, mean_slack


def ball(x: Tensor, eps: Tensor) -> Box:
    """Return a box that holds every image x′ of [0, 1], in x's precision, with |x′ − x| <= eps in exact arithmetic.

    x: float32 or float64 in [0, 1]; eps: float64 >= 0, broadcastable to x. Only eps must be rounded up to x's
    precision: x′ <= x + eps is a float, and rounding is monotone, so x′ is at most the rounded sum as well.
    """
    near = eps.to(x.dtype)
    reach = torch.where(near < eps, torch.nextafter(near, torch.full_like(near, torch.inf)), near)
    return Box((x - reach).clamp_(0.0, 1.0), (x + reach).clamp_(0.0, 1.0))


def bare_ball(x: Tensor, eps: float) -> Box:
    """Return the ball of radius eps around x, within [0, 1], without slack: for training, which proves nothing."""
    return Box((x - eps).clamp(min=0.0), (x + eps).clamp(max=1.0))


def _with_slack(layer: LipschitzModule, box: Box) -> Box:
    return layer.forward_box(box)


bare_box: Handlers[[Box], Box] = Handlers("linfdist.bounds.bare_box", "has no bounds", _with_slack)
"""bare_box(layer, box) bounds a layer as its `forward_box` does, but without slack: for training, which proves nothing.

By default it is `forward_box`, for layers whose bounds need no slack, or that nobody trains on boxes.
"""

relaxation: Handlers[[Box], tuple[Tensor, Tensor]] = Handlers("linfdist.bounds.relaxation", "has no linear relaxation")
"""relaxation(layer, box) gives slope and height of a band: over the box each output lies between slope · x and
slope · x + height. It has no slack for rounding in x: proofs add that.

A layer for which it is registered is nonlinear: smaller boxes of its inputs give better bounds of all kinds.
"""


def nonlinear(layer: LipschitzModule) -> bool:
    """Return whether linear bounds use a relaxation of the layer."""
    return layer in relaxation


def boxes(layers: Iterable[LipschitzModule], box: Box, slack: bool = True) -> list[Box]:
    """Bound the inputs of each layer and the outputs of the last one by intervals (IBP)."""
    found = [box]
    for layer in layers:
        found.append(layer.forward_box(found[-1]) if slack else bare_box(layer, found[-1]))
    return found


class Margins(NamedTuple):
    """Bounds of the margins of one class over b boxes of features.

    lower: (b, classes) float64: z[best] − z[j] is at least lower[:, j]; infinity for the best class itself, −infinity
    where nothing can be proved. size: (b,) float64: no |z[j]| is larger; infinity or NaN where there is no bound.
    closer: None, or a function that costs more: closer(wanted) returns `lower` with better bounds where wanted
    (b, classes) is True. It keeps no state between calls.
    """

    lower: Tensor
    size: Tensor
    closer: Callable[[Tensor], Tensor] | None = None


BoundsMargins = Callable[[Box, Tensor, float], Margins]
ProvesBoxes = Callable[[Box, Tensor, float], Tensor]


def margins_of(logits: Box, best: Tensor, tolerance: float) -> Margins:
    """Bound the margins of best (b,), given bounds (b, classes) of all logits, which a logit may exceed by `tolerance`.

    If a bound of an image is not finite, nothing can be proved about its margins.
    """
    lower, upper = logits.lower.double(), logits.upper.double()
    apart = lower.gather(1, best[:, None]) - upper
    apart = apart - apart.abs() * 2.0**-50 - 2 * tolerance * UP
    size = torch.maximum(lower.abs(), upper.abs()).amax(1) + tolerance
    finite = apart.isfinite() & size.isfinite()[:, None]  # the size is NaN where one bound is
    return Margins(apart.where(finite, -torch.inf).scatter(1, best[:, None], torch.inf), size)


def known(apart: Tensor, best: Tensor) -> Tensor:
    """Replace bounds (b, classes) that are not finite by −infinity, and the bound of best (b,) by infinity."""
    return apart.where(apart.isfinite(), -torch.inf).scatter(1, best[:, None], torch.inf)


def _from_logits(readout: Readout) -> BoundsMargins:
    if readout.lipschitz is None:  # `tolerance` speaks of features: only the readout knows what they do to logits
        raise TypeError(
            f"a {type(readout).__name__} has no bounds of its logits that hold without a Lipschitz constant: register "
            "a function for it with linfdist.bounds.margins.register"
        )
    return lambda box, best, tolerance: margins_of(readout.forward_box(box), best, tolerance)


margins: Handlers[[], BoundsMargins] = Handlers("linfdist.bounds.margins", "has no bounds", _from_logits)
"""margins(readout) prepares bounds of margins: what depends on the weights alone is computed once.

The result is called as bounds(box, best, tolerance), with a box of computed features, two tensors (b, F), and classes
best (b,) int64. `tolerance` is how far a computed logit, if the readout has a Lipschitz constant, or else a computed
feature may lie outside the bounds all the same, at either end. By default the margins follow from
`Readout.forward_box`.
"""


def box_prover(readout: Readout) -> ProvesBoxes:
    """Return a function that proves predictions over boxes; it is called like the result of `margins`.

    It returns (b,) bool: True if class best[k] has the largest computed logit, without a tie, for all features in the
    k-th box. Costly bounds are computed only where the others have failed, and first for the worst class of each box.
    """
    bounds = margins(readout)

    def proves(box: Box, best: Tensor, tolerance: float) -> Tensor:
        lower, _, closer = bounds(box, best, tolerance)
        if closer is not None:
            worst = lower.argmin(1, keepdim=True)  # (b, 1)
            first = torch.zeros_like(lower, dtype=torch.bool).scatter_(1, worst, True)
            lower = closer(first & (lower <= 0))
            hopeful = lower.gather(1, worst) > 0
            lower = torch.maximum(lower, closer(hopeful & (lower <= 0)))
        return (lower > 0).all(1)

    return proves


@margins.register(MeanLogits)
def _(readout: MeanLogits) -> BoundsMargins:
    """Bound the margins of the mean by the means of the members' bounds.

    The features of the mean are pixels, which are copied, so that `tolerance` matters for logits only.
    """
    members = [(each, margins(each.readout), flush_error(each, rounding_error(each))) for each in readout.networks]

    def bounds(box: Box, best: Tensor, tolerance: float) -> Margins:
        pixels = _pixels(readout, box)
        views = [cast(View, view).forward_box(pixels) for view in readout.views]
        found = [own(each.features_box(view), best, lost) for each, own, lost in members for view in views]
        return _mean(readout, found, best, 0.0 if readout.lipschitz is None else tolerance)

    return bounds


def _pixels(readout: MeanLogits, box: Box) -> Box:
    """Round a box of pixels (b, C·H·W) outwards to the members' precision, clip it to [0, 1] and shape it as images."""
    dtype = readout.networks[0].any_tensor.dtype
    lower, upper = box.lower.to(dtype), box.upper.to(dtype)
    lower = torch.where(lower > box.lower, torch.nextafter(lower, lower.new_tensor(-math.inf)), lower)
    upper = torch.where(upper < box.upper, torch.nextafter(upper, upper.new_tensor(math.inf)), upper)
    return Box(*(side.clamp(0.0, 1.0).unflatten(1, readout.shape) for side in (lower, upper)))


def _mean(readout: MeanLogits, found: Sequence[Margins], best: Tensor, tolerance: float) -> Margins:
    """Average the members' margins.

    Both logits of a margin are means, and each may be rounded by up to the slack, in any order of summation.
    """
    dtype = readout.networks[0].any_tensor.dtype
    size = torch.stack([each.size for each in found]).mean(0)  # (b,)
    slack = mean_slack(size, len(found), dtype) + FLUSHED * torch.finfo(dtype).tiny + tolerance  # (b,)

    def mean(bounds: list[Tensor]) -> Tensor:
        every = torch.stack(bounds)  # (members · views, b, classes)
        own = 2.0**-50 * (len(bounds) + 2) * every.abs().mean(0)
        return known(every.mean(0) - own - 2 * slack[:, None], best)

    def closer(wanted: Tensor) -> Tensor:
        return mean([each.lower if each.closer is None else each.closer(wanted) for each in found])

    costly = any(each.closer is not None for each in found)
    return Margins(mean([each.lower for each in found]), size + slack, closer if costly else None)
