"""The small conventional network on top of a feature extractor that is robust."""

import math
import os
from typing import Any

import torch
from torch import Tensor

from .base import Box, Graph, Shape
from .head_bounds import HeadBounds
from .readout import Lead, Leads, Proves, Readout
from .rounding import UP, largest
from .scaled_linear import ScaledLinear

EXACT_PRODUCTS = ("none", "ieee")  # torch's words for float32 products in float32
EXACT_CPU_MODES = {"ONEDNN_DEFAULT_FPMATH_MODE": "STRICT", "DNNL_DEFAULT_FPMATH_MODE": "STRICT"}
EXACT_MODES = EXACT_CPU_MODES | {  # what asks cuBLAS for other products than torch does
    "NVIDIA_TF32_OVERRIDE": "0", "CUBLAS_EMULATE_SINGLE_PRECISION": "0", "CUBLAS_EMULATE_DOUBLE_PRECISION": "0",
}  # fmt: skip


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
        own = self.head_bounds()

        def proves(box: Box, best: Tensor, off: float) -> Tensor:
            return own.proves(_moved_apart(box, off), best)

        return proves

    def leads(self) -> Leads:
        own = self.head_bounds()

        def leads(box: Box, best: Tensor, off: float) -> Lead:
            return Lead(*own.leads(_moved_apart(box, off), best))

        return leads

    def terms(self, shape: Shape) -> int:
        return self.hidden.weight.numel() + self.output.weight.numel()

    def check(self, name: str) -> None:
        """The bounds are those of products in the head's own precision."""
        for parameter in self.parameters():
            largest(parameter)
        exact = EXACT_MODES if self.hidden.weight.device.type == "cuda" else EXACT_CPU_MODES
        for variable, harmless in exact.items():
            mode = os.environ.get(variable) or harmless
            if mode.upper() != harmless:
                raise ValueError(
                    f"{variable}={mode}: products may be computed in less than the head's precision, which its "
                    "bounds do not cover: unset it"
                )
        backends: Any = torch.backends
        for part in (backends, backends.mkldnn.matmul, backends.cuda.matmul):
            precision = part.fp32_precision
            if precision not in EXACT_PRODUCTS:
                raise ValueError(
                    f"torch may compute float32 products in {precision}, which the bounds of the head do not "
                    'cover: call torch.set_float32_matmul_precision("highest") first'
                )

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
