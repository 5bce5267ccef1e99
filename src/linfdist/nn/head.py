"""The small conventional network on top of a feature extractor that is robust."""

import math

from torch import Tensor

from .base import Shape
from .readout import Readout
from .rounding import largest
from .scaled_linear import ScaledLinear


class Head(Readout):
    """h of Section 6: FC(hidden) + Tanh, FC(classes).

    x (B, in_features) -> logits (B, classes). Its bounds hold around one input each: IBP and CROWN, see `bounds.head`.
    """

    parts = (ScaledLinear,)
    multiplies = True
    lipschitz = None

    def __init__(self, in_features: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.hidden = ScaledLinear(in_features, hidden)
        self.output = ScaledLinear(hidden, classes)

    @property
    def classes(self) -> int:
        return self.output.out_features

    def forward(self, x: Tensor, p: float | Tensor = math.inf) -> Tensor:
        return self.output(self.hidden(x).tanh())  # (B, hidden) -> (B, classes)

    def terms(self, shape: Shape) -> int:
        return self.hidden.weight.numel() + self.output.weight.numel()

    def check(self, name: str) -> None:
        for parameter in self.parameters():
            largest(parameter)
