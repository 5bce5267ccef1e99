"""Small modules on top of the ops, as a user would write them."""

import math

import torch
from torch import Tensor, nn

import linfdist as ld


class TwoLayers(nn.Module):
    """A convolution, then a linear layer; p is an argument."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(7)
        self.kernels = nn.Parameter(torch.randn(4, 2, 3, 3, generator=generator).to(dtype))
        self.weights = nn.Parameter(torch.randn(3, 4 * 5 * 4, generator=generator).to(dtype))

    def forward(self, x: Tensor, p: float | Tensor = math.inf) -> Tensor:
        return ld.dist(ld.dist_conv2d(x, self.kernels, p, padding=1).flatten(1), self.weights, p)

    def forward_box(self, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
        lower, upper = ld.dist_box_conv2d(lower, upper, self.kernels, padding=1)
        return ld.dist_box(lower.flatten(1), upper.flatten(1), self.weights)


def images(n: int = 6, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.rand(n, 2, 5, 4, dtype=dtype)


def gradients(model: nn.Module, y: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(y.square().sum(), list(model.parameters())))
