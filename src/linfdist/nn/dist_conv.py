"""The convolutional ℓ∞-dist layer."""

import math
from collections.abc import Sequence
from fractions import Fraction

import torch
from torch import Tensor, nn

from ..ops.dist import dist_box_conv2d, dist_conv2d
from ..ops.geometry import IntOrPair, make_geometry, output_size
from .base import Box, LipschitzModule, Rounding, Shape
from .dist_linear import IDENTITY, distance_rounding


class DistConv2d(LipschitzModule):
    """Distances from each window of an image to each kernel (Appendix F); sizes as in `torch.nn.Conv2d`.

    y[b, k, i, j] = ‖window(x[b], i, j) − w[k]‖_p (+ b[k])        x (B, C, H, W) -> (B, O, OH, OW)

    Padding is the value 0, and the box [0, 0]. Weights start as N(0, 1), biases as 0. `identity_init` then sets, at the
    kernel's centre, output channel k's weight for input channel k mod C to -10 (with groups: counted in each group), so
    that each output channel starts as a copy of one input channel (see `DistLinear`; with a stride, as a copy of every
    second pixel, and so on). This needs in_channels <= out_channels and a kernel with a centre.
    """

    repeatable = True
    lipschitz = 1.0  # Fact 3.4, at p = inf only
    holds_distances = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: IntOrPair,
        stride: IntOrPair = 1,
        padding: IntOrPair = 0,
        dilation: IntOrPair = 1,
        groups: int = 1,
        bias: bool = False,
        identity_init: bool = False,
    ) -> None:
        super().__init__()
        self.geometry = make_geometry(stride, padding, dilation, groups)
        if in_channels % groups or out_channels % groups:
            raise ValueError(f"{in_channels} and {out_channels} channels do not divide into groups={groups}")
        kernel = tuple(kernel_size) if isinstance(kernel_size, Sequence) else (kernel_size, kernel_size)
        if len(kernel) != 2 or min(kernel) < 1:
            raise ValueError(f"kernel_size must be an int or a pair of ints of at least 1, got {kernel_size!r}")
        if identity_init and in_channels > out_channels:
            raise ValueError(
                f"identity_init needs in_channels <= out_channels, got {in_channels} > {out_channels}: "
                "the layer cannot pass on all its inputs"
            )
        if identity_init and (kernel[0] % 2 == 0 or kernel[1] % 2 == 0):
            raise ValueError(f"identity_init needs a kernel with a centre: odd sizes, got {kernel}")
        self.in_channels, self.out_channels = in_channels, out_channels
        self.weight = nn.Parameter(torch.randn(out_channels, in_channels // groups, *kernel))
        self.bias = nn.Parameter(torch.zeros(out_channels)) if bias else None
        if identity_init:
            k = torch.arange(out_channels)
            channel = k % (out_channels // groups) % (in_channels // groups)
            with torch.no_grad():
                self.weight[k, channel, kernel[0] // 2, kernel[1] // 2] = IDENTITY

    def forward(self, x: Tensor, p: float | Tensor = math.inf) -> Tensor:
        y = dist_conv2d(x, self.weight, p, *self.geometry)  # (B, O, OH, OW)
        return y if self.bias is None else y + self.bias[:, None, None]

    def forward_box(self, box: Box) -> Box:
        """Tight for each neuron (Appendix B), and without slack: see `dist_box_conv2d`; adding a bias is monotone."""
        near, far = dist_box_conv2d(box.lower, box.upper, self.weight, *self.geometry)  # (B, O, OH, OW) each
        if self.bias is None:
            return Box(near, far)
        bias = self.bias[:, None, None]
        return Box(near + bias, far + bias)

    def output_shape(self, shape: Shape) -> Shape:
        return (self.out_channels, *output_size((1, *shape), self.weight.shape, self.geometry))

    def rounding(self, size: Fraction, unit: Fraction) -> Rounding:
        """The subtraction and the bias are rounded; |·| and max are exact, and padding adds nothing larger."""
        return distance_rounding(self.weight, self.bias, size, unit)

    def terms(self, shape: Shape) -> int:
        return self.weight.numel() * math.prod(self.output_shape(shape)[1:])

    def extra_repr(self) -> str:
        sizes = f"{self.in_channels}, {self.out_channels}, kernel_size={tuple(self.weight.shape[2:])}"
        rest = ", ".join(f"{name}={value}" for name, value in self.geometry._asdict().items())
        return f"{sizes}, {rest}, bias={self.bias is not None}"
