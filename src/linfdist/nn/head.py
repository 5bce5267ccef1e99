"""The small conventional network on top of a feature extractor that is robust."""

import math

from torch import Tensor

from .base import Box, Graph, Shape
from .head_bounds import HeadBounds
from .products import check_products
from .readout import Leads, Proves, Readout, by_leads
from .rounding import UP, largest
from .scaled_linear import ScaledLinear


class Head(Readout):
    """h of Section 6: FC(hidden) + Tanh, FC(classes).

    x (B, in_features) -> logits (B, classes). Its bounds hold around one input each: IBP and CROWN, see `HeadBounds`.
    """

    parts = (ScaledLinear,)
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

    def head_bounds(self) -> HeadBounds:
        """The bounds of the head with its weights as they are now."""
        first, second = self.hidden, self.output
        return HeadBounds(first.weight.dtype, first.scaled_weight(), first.bias, second.scaled_weight(), second.bias)

    def bounds(self) -> Proves:
        return by_leads(self.leads())

    def leads(self) -> Leads:
        own = self.head_bounds()
        return lambda box, best, off: own.leads(_moved_apart(box, off), best)

    def terms(self, shape: Shape) -> int:
        return self.hidden.weight.numel() + self.output.weight.numel()

    def check(self, name: str) -> None:
        for parameter in self.parameters():
            largest(parameter)

    def check_process(self) -> None:
        """The bounds are those of products in the head's own precision."""
        check_products()

    def onnx(self, graph: Graph, x: str, name: str | None = None) -> str:
        return self._product(graph, graph.node("Tanh", self._product(graph, x, self.hidden)), self.output, name)

    @staticmethod
    def _product(graph: Graph, x: str, layer: ScaledLinear, name: str | None = None) -> str:
        product = graph.node("MatMul", x, graph.constant(layer.scaled_weight().T))
        return graph.node("Add", product, graph.constant(layer.bias), name=name)


def _moved_apart(box: Box, off: float) -> Box:
    """A box of features in float64, its ends moved apart by `off` and a little more."""
    lower, upper = box.lower.double(), box.upper.double()
    apart = off * UP + (lower.abs() + upper.abs()) * 2.0**-52 * (off > 0)
    return Box(lower - apart, upper + apart)
