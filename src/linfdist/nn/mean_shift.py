"""Normalisation by a shift alone, which leaves the Lipschitz constant as it is."""

import math
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor, distributed
from torch.autograd import Function

from ..ops.operators import is_plain
from .base import Box, LipschitzModule, Rounding, Shape
from .rounding import largest

MOMENTUM = 0.1


class MeanShift(LipschitzModule):
    """Subtracts from each feature its mean (Section 5.1): batch normalisation without the scaling.

    training:   y = x − mean,           mean over the batch, and over all positions of images; differentiable
                running_mean <- 0.9 running_mean + 0.1 mean         (starts at 0)
    eval:       y = x − running_mean

    x (B, num_features) or (B, num_features, H, W) -> same shape. While training in several processes
    (`torch.distributed`) the mean is that of all their batches together, whose sizes may differ: every process must
    then call the layer equally often. Evaluation does not communicate.
    """

    repeatable = True
    lipschitz = 1.0  # in eval mode, where the shift does not depend on x
    running_mean: Tensor

    def __init__(self, num_features: int) -> None:
        super().__init__()
        self.num_features = num_features
        self.register_buffer("running_mean", torch.zeros(num_features))

    def forward(self, x: Tensor, p: float | Tensor = math.inf) -> Tensor:
        if x.dim() not in (2, 4) or x.shape[1] != self.num_features:
            raise ValueError(f"need x (B, {self.num_features}) or (B, {self.num_features}, H, W), got {tuple(x.shape)}")
        if not self.training:
            return x - _aligned(self.running_mean, x)
        if _several_processes():
            mean = _mean_over_processes(x)  # (F,)
            y = x - _aligned(mean, x)
        else:
            y, mean = (PlainCentre if is_plain(x) else Centre).apply(x)
        self.running_mean.lerp_(mean.detach(), MOMENTUM)
        return y

    def forward_box(self, box: Box) -> Box:
        """Both ends shifted; rounded subtraction is monotone. In training mode there is no such map: RuntimeError."""
        if self.training:
            raise RuntimeError("in training mode the shift depends on the whole batch: call model.eval() first")
        return Box(self(box.lower), self(box.upper))

    def output_shape(self, shape: Shape) -> Shape:
        return shape

    def rounding(self, size: Fraction, unit: Fraction) -> Rounding:
        return Rounding.of(size + largest(self.running_mean), 1, unit)

    def check(self, name: str) -> None:
        """Raise ValueError unless there is one mean per feature: along the batch, it would tell images apart."""
        if self.running_mean.shape != (self.num_features,):
            raise ValueError(
                f"{name}.running_mean has shape {tuple(self.running_mean.shape)}: certificates need "
                f"({self.num_features},), one mean per feature"
            )

    def extra_repr(self) -> str:
        return f"{self.num_features}"


def _aligned(mean: Tensor, x: Tensor) -> Tensor:
    """(F,) -> (F,) for vectors, (F, 1, 1) for images."""
    return mean if x.dim() == 2 else mean[:, None, None]


def _all_but_features(x: Tensor) -> list[int]:
    return [dim for dim in range(x.dim()) if dim != 1]


class Centre(Function):
    """x − mean and the mean (F,). One pass less over memory than autograd's own gradient, g − mean(g)."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> tuple[Tensor, Tensor]:
        if x.numel() == 0:
            raise ValueError(f"cannot take the mean of an empty batch, x has shape {tuple(x.shape)}")
        mean = x.mean(_all_but_features(x))
        return x - _aligned(mean, x), mean

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: tuple[Tensor, Tensor]) -> None:
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> Tensor:
        return grad - grad.mean(_all_but_features(grad), keepdim=True)


class PlainCentre(Function):
    """The same where autograd alone is at work: torch reads the signature of a `Function` with `setup_context` at every
    call, which takes longer than a small batch.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        y, mean = Centre.forward(x)
        ctx.mark_non_differentiable(mean)
        return y, mean

    backward = Centre.backward


def _mean_over_processes(x: Tensor) -> Tensor:
    """The mean of each feature over the batches of all processes."""
    count = x.new_full((1,), x[:, 0].numel())
    total = AllReduce.apply(torch.cat([x.sum(_all_but_features(x)), count]))  # (F + 1,)
    return total[:-1] / total[-1]


def _several_processes() -> bool:
    return distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1


class AllReduce(Function):
    """The sum over all processes; so is its gradient, since every process uses it.

    `torch.distributed.nn.functional.all_reduce` is deprecated and cannot be compiled.
    """

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        total = x.clone()
        distributed.all_reduce(total)
        return total

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return AllReduce.apply(grad)
