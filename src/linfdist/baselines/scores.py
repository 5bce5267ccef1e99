"""The last layer of conventional networks, with interval bounds of the differences of its logits."""

import math
from fractions import Fraction

import torch
from torch import Tensor

from ..bounds.forms import BLOCK, Forms, forms_of, lowest, margin_weights, pull_back
from ..bounds.margins import BoundsMargins, Margins, known, margins
from ..nn import Box, Readout, Rounding
from ..nn.base import Shape
from ..nn.rounding import UP
from .affine import Linear


class Scores(Readout):
    """z = W f + b. Bounds are those of z[c] − z[j] = (W[c] − W[j]) f + b[c] − b[j], one sum and not two: over a box of
    features they are tight. f (B, F) -> (B, classes).
    """

    absorbs_flushes = True

    def __init__(self, in_features: int, classes: int) -> None:
        super().__init__()
        self.linear = Linear(in_features, classes)

    @property
    def classes(self) -> int:
        return len(self.linear.weight)

    @property
    def lipschitz(self) -> float:
        return self.linear.lipschitz

    def forward(self, x: Tensor, p: float | Tensor = math.inf) -> Tensor:
        return self.linear(x)

    def rounding(self, size: Fraction, unit: Fraction) -> Rounding:
        return self.linear.rounding(size, unit)

    def terms(self, shape: Shape) -> int:
        return self.linear.terms(shape)


@margins.register(Scores)
def _(scores: Scores) -> BoundsMargins:
    def bounds(box: Box, best: Tensor, off: float) -> Margins:
        apart = torch.full((len(best), scores.classes), -torch.inf, dtype=torch.float64, device=best.device)
        row, other = apart.scatter(1, best[:, None], torch.inf).isneginf().nonzero().unbind(1)
        few = max(1, BLOCK // max(scores.linear.inputs, scores.classes))
        for some, others in zip(row.split(few), other.split(few), strict=True):
            forms = forms_of(margin_weights(best, some, others, scores.classes, torch.float64), some)
            apart[some, others] = lowest(pull_back(scores.linear, forms, box), box) - 2 * off * UP
        logits = scores.linear.forward_box(box)
        size = torch.maximum(logits.lower.abs(), logits.upper.abs()).double().amax(1) + off
        return Margins(known(apart, best), size)

    return bounds


@pull_back.register(Scores)
def _(scores: Scores, forms: Forms, box: Box) -> Forms:
    return pull_back(scores.linear, forms, box)
