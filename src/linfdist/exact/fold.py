"""Convert a trained head to one that takes whole grid units."""

import math
from fractions import Fraction

import torch
from torch import Tensor

from ..bounds.head import TANH_EPS, HeadBounds
from ..nn import Box, Head, Readout
from .head import TANH, FrozenHead, lost

TWO = 2.001  # no two values of tanh, as executed, are further apart


@torch.no_grad()
def fold_head(head: Readout, scale: float, shift: Tensor) -> FrozenHead:
    """Fold scale and shift into the head, which then takes n instead of n / scale + shift.

    n (B, F), scale a number that float64 holds, shift (F,) float64. Raises TypeError for readouts other than a `Head`.
    """
    w1, b1, w2, b2 = _weights(head)
    return FrozenHead(w1 / scale, b1 + w1 @ shift, w2, b2)


@torch.no_grad()
def head_distance(
    head: Readout, frozen: FrozenHead, scale: float, shift: Tensor, reach: tuple[Tensor, Tensor], moved: Fraction
) -> float:
    """Bound the distance of a logit of `frozen` from that of the float32 head, both as executed; rounded up.

    reach: the least and the largest features n, (F,) int64 each; moved: how far n / scale + shift can be from the float
    network's features. The hidden layers then differ by moved Σ|w1|, plus the roundings of both heads and of
    `fold_head`. tanh does not amplify that. The outputs differ by Σ|w2| times it, plus the roundings of both heads.
    """
    w1, b1, w2, _ = (tensor.abs() for tensor in _weights(head))
    apart = float(moved) * (1 + 2.0**-50)
    furthest = torch.maximum(*(end.abs() for end in reach)).double()  # (F,)
    features = furthest / scale + shift.abs()
    folding = lost(features @ w1.T + b1, w1.shape[1])
    around = (features + apart) * (1 + 2.0**-40)
    floats = HeadBounds(torch.float32, *_weights(head)).hidden(Box(-around[None], around[None]))
    hidden = apart * w1.sum(1) + floats.slack[0] + frozen.hidden_slack(furthest) + folding  # (H,)
    hidden += TANH_EPS * torch.finfo(torch.float32).eps + TANH
    output = hidden.clamp_max(TWO) @ w2.T + floats.output_slack[0] + frozen.output_slack()
    distance = float(output.max()) * (1 + 2.0**-20)  # for the roundings here
    if not math.isfinite(distance):
        raise ValueError("the float network could overflow, so nothing can be said about its distance")
    return distance


def _weights(head: Readout) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the matrices and biases as the head uses them, in float64."""
    if not isinstance(head, Head):
        raise TypeError(f"a {type(head).__name__} has no form on top of integers: only a Head can follow them")
    layers = (head.hidden, head.output)
    (w1, b1), (w2, b2) = ((each.scaled_weight().cpu().double(), each.bias.cpu().double()) for each in layers)
    return w1, b1, w2, b2
