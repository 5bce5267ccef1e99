"""The last layer of conventional networks, with interval bounds of the differences of its logits."""

import math
from fractions import Fraction

import torch
from torch import Tensor

from ..nn import Box, Forms, Readout, Rounding
from ..nn.base import Shape
from ..nn.forms import BLOCK, forms_of, leads_of, lowest
from ..nn.readout import Lead, Leads, Proves, by_leads
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

    def bounds(self) -> Proves:
        return by_leads(self.leads())

    def leads(self) -> Leads:
        def leads(box: Box, best: Tensor, off: float) -> Lead:
            apart = torch.full((len(best), self.classes), -torch.inf, dtype=torch.float64, device=best.device)
            row, other = apart.scatter(1, best[:, None], torch.inf).isneginf().nonzero().unbind(1)
            few = max(1, BLOCK // max(self.linear.inputs, self.classes))
            for some, others in zip(row.split(few), other.split(few), strict=True):
                forms = forms_of(leads_of(best, some, others, self.classes, torch.float64), some)
                apart[some, others] = lowest(self.pull_back(forms, box), box) - 2 * off * UP
            logits = self.linear.forward_box(box)
            size = torch.maximum(logits.lower.abs(), logits.upper.abs()).double().amax(1) + off
            return Lead(apart.where(apart.isfinite(), -torch.inf).scatter(1, best[:, None], torch.inf), size)

        return leads

    def rounding(self, size: Fraction, unit: Fraction) -> Rounding:
        return self.linear.rounding(size, unit)

    def pull_back(self, forms: Forms, box: Box) -> Forms:
        return self.linear.pull_back(forms, box)

    def terms(self, shape: Shape) -> int:
        return self.linear.terms(shape)
