"""The small conventional network on top of a robust feature extractor."""

import math

import torch
from torch import Tensor, nn

from .base import Readout, Shape, largest, new_weight


class ScaledLinear(nn.Module):
    """y = x (w / √in_features)ᵀ + b, with w from N(0, 1) and b = 0 at the start.

    x (..., in_features) -> (..., out_features). Scaling in the forward pass leaves weights of size one, like those of
    the dist layers, so that one learning rate suits all.
    """

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.weight = new_weight(out_features, in_features)
        self.bias = nn.Parameter(torch.zeros(out_features))

    def scaled_weight(self) -> Tensor:
        """Return the rounded matrix that `forward` multiplies by, (O, I): bounds of this layer must use the same."""
        return self.weight * (1 / math.sqrt(self.in_features))

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.scaled_weight(), self.bias)

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}"


class Head(Readout):
    """h of Section 6: FC(hidden) + Tanh, FC(classes).

    x (B, in_features) -> logits (B, classes). Its bounds, IBP and CROWN, are those of `bounds.head`.
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
