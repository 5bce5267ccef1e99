"""Layers and readouts of ℓ∞ distances, and the shift between them."""

import copy
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed, nn
from torch.autograd import Function

from ..ops.backends import is_plain
from ..ops.cached_lists import FEW_ROWS, CachedLists, make_lists
from ..ops.dist import dist, dist_box, dist_box_conv2d, dist_conv2d
from ..ops.geometry import IntOrPair, make_geometry, output_size
from .base import (
    Box,
    LipschitzModule,
    Readout,
    Rounding,
    Shape,
    largest,
    mean_rounding,
    mean_slack,
    new_weight,
    widened,
)

Layer = TypeVar("Layer", bound="Distances")


class Distances(nn.Module):
    """Distances to the rows of `weight` (O, I). `_lists` are for a layer whose weights cannot change any more."""

    weight: nn.Parameter
    _lists: CachedLists | None = None

    def distances(self, x: Tensor, p: float | Tensor) -> Tensor:
        """Compute the distances of x (..., I) to all rows: (..., O)."""
        if self._lists and _few(x) and not isinstance(p, Tensor) and p == math.inf:
            return self._lists.dist(x)
        return dist(x, self.weight, p)

    def distances_box(self, box: Box) -> tuple[Tensor, Tensor]:
        """Return the smallest and the largest distances over a box, (..., O) each."""
        if self._lists and _few(box.lower):
            return self._lists.dist_box(*box)
        return dist_box(box.lower, box.upper, self.weight)

    def with_lists(self: Layer, box: Box) -> Layer:
        """Return the same layer, with the same tensors, for inputs of the box (1, I): see `with_cached_lists`."""
        lists = make_lists(box.lower[0], box.upper[0], self.weight) if box.lower.dim() == 2 else None
        if lists is None:
            return self
        cached = copy.copy(self)
        cached._lists = lists
        return cached


def _few(x: Tensor) -> bool:
    return x.dim() == 2 and len(x) < FEW_ROWS and not torch.is_grad_enabled()


IDENTITY = -10.0  # C₀ of Section 5.3


class DistLinear(Distances, LipschitzModule):
    """Distances to the rows of a weight matrix: the neurons of eq. (2).

    y[..., k] = ‖x − w[k]‖_p (+ b[k])        x (..., in_features) -> (..., out_features)

    Weights start as N(0, 1), biases as 0. `identity_init` (Section 5.3) then sets w[k, k mod in_features] = -10: neuron
    k starts as |x + 10| = x + 10 of one input, the largest distance by far, and the mean shift removes the 10. This
    needs in_features <= out_features, or inputs would be lost.
    """

    repeatable = True
    lipschitz = 1.0  # Fact 3.4, at p = inf only
    holds_distances = True

    def __init__(self, in_features: int, out_features: int, bias: bool = False, identity_init: bool = False) -> None:
        super().__init__()
        if identity_init and in_features > out_features:
            raise ValueError(
                f"identity_init needs in_features <= out_features, got {in_features} > {out_features}: "
                "the layer cannot pass on all its inputs"
            )
        self.in_features, self.out_features = in_features, out_features
        self.weight = new_weight(out_features, in_features)
        self.bias = nn.Parameter(torch.zeros(out_features)) if bias else None
        if identity_init and not self.weight.is_meta:  # on meta, torch would import its compiler for this
            k = torch.arange(out_features)
            with torch.no_grad():
                self.weight[k, k % in_features] = IDENTITY

    def forward(self, x: Tensor, p: float | Tensor = math.inf) -> Tensor:
        y = self.distances(x, p)  # (..., O)
        return y if self.bias is None else y + self.bias

    def forward_box(self, box: Box) -> Box:
        """Bound each neuron tightly (Appendix B) and without slack: see `dist_box`; adding a bias is monotone."""
        near, far = self.distances_box(box)  # (..., O) each
        return Box(near, far) if self.bias is None else Box(near + self.bias, far + self.bias)

    def output_shape(self, shape: Shape) -> Shape:
        return (*shape[:-1], self.out_features)

    def rounding(self, size: Fraction, unit: Fraction) -> Rounding:
        """Describe the rounding of the subtraction and the bias; |·| and max are exact."""
        return distance_rounding(self.weight, self.bias, size, unit)

    def terms(self, shape: Shape) -> int:
        return self.weight.numel()

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}, bias={self.bias is not None}"


def distance_rounding(weight: Tensor, bias: Tensor | None, size: Fraction, unit: Fraction) -> Rounding:
    """Describe the rounding of a dist layer: one subtraction, and one addition if there is a bias."""
    reach = size + largest(weight) + (0 if bias is None else largest(bias))
    return Rounding.of(reach, 1 + (bias is not None), unit)


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
        self.weight = new_weight(out_channels, in_channels // groups, *kernel)
        self.bias = nn.Parameter(torch.zeros(out_channels)) if bias else None
        if identity_init and not self.weight.is_meta:  # on meta, torch would import its compiler for this
            k = torch.arange(out_channels)
            channel = k % (out_channels // groups) % (in_channels // groups)
            with torch.no_grad():
                self.weight[k, channel, kernel[0] // 2, kernel[1] // 2] = IDENTITY

    def forward(self, x: Tensor, p: float | Tensor = math.inf) -> Tensor:
        y = dist_conv2d(x, self.weight, p, *self.geometry)  # (B, O, OH, OW)
        return y if self.bias is None else y + self.bias[:, None, None]

    def forward_box(self, box: Box) -> Box:
        """Bound each neuron tightly (Appendix B) and without slack: see `dist_box_conv2d`; a bias is monotone."""
        near, far = dist_box_conv2d(box.lower, box.upper, self.weight, *self.geometry)  # (B, O, OH, OW) each
        if self.bias is None:
            return Box(near, far)
        bias = self.bias[:, None, None]
        return Box(near + bias, far + bias)

    def output_shape(self, shape: Shape) -> Shape:
        return (self.out_channels, *output_size((1, *shape), self.weight.shape, self.geometry))

    def rounding(self, size: Fraction, unit: Fraction) -> Rounding:
        """Describe the rounding of the subtraction and the bias; |·| and max are exact, padding adds nothing larger."""
        return distance_rounding(self.weight, self.bias, size, unit)

    def terms(self, shape: Shape) -> int:
        return self.weight.numel() * math.prod(self.output_shape(shape)[1:])

    def extra_repr(self) -> str:
        sizes = f"{self.in_channels}, {self.out_channels}, kernel_size={tuple(self.weight.shape[2:])}"
        rest = ", ".join(f"{name}={value}" for name, value in self.geometry._asdict().items())
        return f"{sizes}, {rest}, bias={self.bias is not None}"


class NearestClass(Distances, Readout):
    """g(x) = −(‖x − w‖ + b), the last layer of Def. 3.2, negated; with several neurons per class, minus their mean.

    z[b, c] = −mean_j (‖x[b] − w[c n + j]‖_p + b[c n + j]),  j < n = per_class        x (B, F) -> (B, classes)

    A mean moves by no more than its terms, so the readout is 1-Lipschitz for every n. Weights start as N(0, 1), biases
    as 0. With n > 1 sums are rounded in an unknown order, so bounds get a slack.
    """

    lipschitz = 1.0
    holds_distances = True

    def __init__(self, in_features: int, classes: int, per_class: int = 1) -> None:
        super().__init__()
        self.in_features, self.per_class = in_features, per_class
        self.weight = new_weight(classes * per_class, in_features)
        self.bias = nn.Parameter(torch.zeros(classes * per_class))

    @property
    def repeatable(self) -> bool:  # type: ignore[override]
        """Whether no sum is rounded: that of several neurons per class is."""
        return self.per_class == 1

    @property
    def classes(self) -> int:
        return len(self.weight) // self.per_class

    def forward(self, x: Tensor, p: float | Tensor = math.inf) -> Tensor:
        y = self.distances(x, p) + self.bias  # (B, classes * per_class)
        return -y if self.per_class == 1 else -self._by_class(y).mean(2)

    def forward_box(self, box: Box) -> Box:
        """Bound the computed logits: (b, classes)."""
        near, far = (side + self.bias for side in self.distances_box(box))
        if self.per_class == 1:
            return Box(-far, -near)
        low, high = self._by_class(-far.double()), self._by_class(-near.double())
        slack = mean_slack(torch.maximum(low.abs(), high.abs()).mean(2), self.per_class, near.dtype)
        return widened(low.mean(2), high.mean(2), slack, near.dtype)

    def rounding(self, size: Fraction, unit: Fraction) -> Rounding:
        """Describe the rounding of the distances, and that of their mean if there are several per class."""
        distances = distance_rounding(self.weight, self.bias, size, unit)
        if self.per_class == 1:
            return distances
        mean = mean_rounding(distances.size, self.per_class, unit)
        return mean._replace(error=distances.error + mean.error)

    def terms(self, shape: Shape) -> int:
        return self.weight.numel()

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.classes}, per_class={self.per_class}"

    def _by_class(self, y: Tensor) -> Tensor:
        return y.unflatten(1, (self.classes, self.per_class))


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
        """Shift both ends: rounded subtraction is monotone. In training mode there is no such map: RuntimeError."""
        if self.training:
            raise RuntimeError("in training mode the shift depends on the whole batch: call model.eval() first")
        return Box(self(box.lower), self(box.upper))

    def output_shape(self, shape: Shape) -> Shape:
        return shape

    def rounding(self, size: Fraction, unit: Fraction) -> Rounding:
        return Rounding.of(size + largest(self.running_mean), 1, unit)

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
    """The same where autograd alone is at work.

    Torch reads the signature of a `Function` with `setup_context` at every call, which takes longer than a small batch.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        y, mean = Centre.forward(x)
        ctx.mark_non_differentiable(mean)
        return y, mean

    backward = Centre.backward


def _mean_over_processes(x: Tensor) -> Tensor:
    """Return the mean of each feature over the batches of all processes."""
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
