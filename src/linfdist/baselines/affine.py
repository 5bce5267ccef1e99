"""Conventional layers, y = W x + b, in floating point: bounds that hold for every order of summation."""

import copy
import math
from abc import abstractmethod
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..bounds.forms import BLOCK, OWN, Forms, forms_of, lowered, lowest, margin_weights, pull_back, times
from ..bounds.interval import BoundsMargins, Margins, bare_box, known, margins
from ..bounds.windows import Windowed, windowed
from ..bounds.zonotope import Zonotope, forward_zonotope, mapped, samples_at_once, size_of
from ..models.composed import arguments_of
from ..nn import Box, LipschitzModule, Readout, Rounding
from ..nn.base import FLUSHED, UP, Shape, gamma, largest, widened


class Affine(LipschitzModule):
    """y = W x + b, executed as sums of products in any order, with or without fused operations.

    A sum of n products and a bias errs by at most γₙ₊₂ (Σ|wᵢ xᵢ| + |b|), and by what underflows; see
    docs/certificates.md. Weights and biases are initialised as in torch's own layers.
    """

    absorbs_flushes = True
    multiplies = True

    def __init__(self, outputs: int, shape: Sequence[int]) -> None:
        """Initialise `outputs` neurons, whose weights have this shape each."""
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, *shape))
        self.bias = nn.Parameter(torch.empty(outputs))
        reach = 1 / math.sqrt(math.prod(shape))
        nn.init.uniform_(self.weight, -reach, reach)
        nn.init.uniform_(self.bias, -reach, reach)

    @abstractmethod
    def product(self, x: Tensor, weight: Tensor) -> Tensor:
        """Return W x for inputs (B, *shape)."""

    @abstractmethod
    def transposed(self, y: Tensor, weight: Tensor, shape: Shape) -> Tensor:
        """Return Wᵀ y for outputs (P, *output_shape): (P, *shape), the shape of an input."""

    @property
    @abstractmethod
    def shaped_bias(self) -> Tensor:
        """The bias, broadcastable to outputs."""

    @property
    def inputs(self) -> int:
        """The number of products that a neuron sums up."""
        return self.weight[0].numel()

    @property
    def lipschitz(self) -> float:
        """The largest ℓ1 norm of a neuron's weights, rounded up; it holds even where denormal weights are flushed."""
        rows = self.weight.detach().double().abs().flatten(1).sum(1)
        return float(rows.max()) * (1 + 2.0**-50 * (self.inputs + 2)) + self.inputs * self._tiny

    def forward(self, x: Tensor, p: float | Tensor = math.inf) -> Tensor:
        return self.product(x, self.weight) + self.shaped_bias

    def forward_box(self, box: Box) -> Box:
        """Compute `bare_box` in float64, and widen it by all that rounding can do, here and in `forward`."""
        dtype, weight, bias = box.lower.dtype, self.weight.double(), self.shaped_bias.double()
        lower, upper = box.lower.double(), box.upper.double()
        middle = self.product((lower + upper) / 2, weight) + bias
        reach = self.product((upper - lower) / 2, weight.abs())
        size, executed = self.sizes(Box(lower, upper), torch.finfo(dtype))
        slack = executed + OWN * (self.inputs + 16) * size
        return widened(middle - reach, middle + reach, slack, dtype)

    def sizes(self, box: Box, precision: torch.finfo) -> tuple[Tensor, Tensor]:
        """Bound Σ|wᵢ xᵢ| + |b| over the box, and the distance of an executed output from the exact one.

        Both are (b, *output_shape). The second is NaN if the output may overflow; it also covers inputs that lie
        outside the box by what flushing can do to them.
        """
        weight = self.weight.detach().abs().to(box.lower.dtype)
        furthest = torch.maximum(box.lower.abs(), box.upper.abs())
        size = self.product(furthest, weight) + self.shaped_bias.detach().abs()
        around = furthest.flatten(1).amax(1).view(-1, *[1] * (size.dim() - 1))
        flushed = FLUSHED * precision.tiny * (1 + self.inputs * (weight.max() + around * 2.0**-30))
        executed = gamma(self.inputs + 2, precision.eps / 2) * size * (1 + 2.0**-20) + flushed
        return size, executed.where(size + executed < precision.max / 4, torch.nan)

    def rounding(self, size: Fraction, unit: Fraction) -> Rounding:
        """Bound the error by γₙ₊₂ of Σ|wᵢ xᵢ| + |b|, and by what flushing costs.

        Outputs may grow by the error as well; no partial sum is twice as large as Σ|wᵢ xᵢ| + |b|. A thread that flushes
        replaces denormal weights, inputs and products by 0. Each of these may cost the smallest normal number times its
        other factor, which for a weight is as large as the inputs are.
        """
        count = self.inputs + 2
        if 2 * count * unit > 1:
            raise ValueError(
                f"sums of {self.inputs} products are too long to bound their rounding in this "
                "precision: use fewer inputs, or float64"
            )
        largest(self.weight)
        whole = Fraction(self.lipschitz) * size + largest(self.bias)
        flushed = 2 * self.inputs * Fraction(self._tiny) * (size + 1 + Fraction(self.lipschitz))
        error = count * unit / (1 - count * unit) * max(whole, Fraction(1)) + flushed
        return Rounding(whole + error, 2 * (whole + flushed), error)

    @property
    def _tiny(self) -> float:
        return torch.finfo(self.weight.dtype).tiny

    def check(self, name: str) -> None:
        largest(self.weight)
        largest(self.bias)
        if not math.isfinite(self.lipschitz):
            raise ValueError(f"{name} has weights whose sum is beyond all floats: nothing can be certified with it")


class Linear(Affine):
    """A fully connected layer: (B, in_features) -> (B, out_features)."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__(out_features, (in_features,))

    def product(self, x: Tensor, weight: Tensor) -> Tensor:
        return functional.linear(x, weight)

    def transposed(self, y: Tensor, weight: Tensor, shape: Shape) -> Tensor:
        return y @ weight

    @property
    def shaped_bias(self) -> Tensor:
        return self.bias

    def output_shape(self, shape: Shape) -> Shape:
        return (len(self.weight),)

    def terms(self, shape: Shape) -> int:
        return self.weight.numel()

    def extra_repr(self) -> str:
        return f"{self.inputs}, {len(self.weight)}"


class Conv2d(Affine):
    """A convolution with zero padding: (B, in_channels, H, W) -> (B, out_channels, H′, W′).

    In eval mode it is always a matrix product with the patches of the image: libraries of convolutions may choose other
    algorithms (Winograd's, Fourier transforms), whose rounding is not that of a sum of products. In training, where
    nothing is proved, the library may choose any algorithm.
    """

    def __init__(self, in_channels: int, out_channels: int, kernel: int, stride: int = 1, padding: int = 0) -> None:
        if kernel < 1 or stride < 1 or not 0 <= padding < kernel:
            raise ValueError(
                "a convolution needs kernel >= 1, stride >= 1 and padding between 0 and kernel - 1, "
                f"got kernel = {kernel!r}, stride = {stride!r}, padding = {padding!r}"
            )
        super().__init__(out_channels, (in_channels, kernel, kernel))
        self.kernel, self.stride, self.padding = kernel, stride, padding

    def product(self, x: Tensor, weight: Tensor) -> Tensor:
        if self.training:
            return functional.conv2d(x, weight, stride=self.stride, padding=self.padding)
        patches = functional.unfold(x, self.kernel, padding=self.padding, stride=self.stride)  # (B, n, positions)
        return (weight.flatten(1) @ patches).unflatten(2, self.output_shape(tuple(x.shape[1:]))[1:])

    def transposed(self, y: Tensor, weight: Tensor, shape: Shape) -> Tensor:
        if self.training:
            rest = [(side + 2 * self.padding - self.kernel) % self.stride for side in shape[1:]]
            return functional.conv_transpose2d(y, weight, stride=self.stride, padding=self.padding, output_padding=rest)
        patches = weight.flatten(1).T @ y.flatten(2)  # (P, n, positions)
        return functional.fold(patches, shape[1:], self.kernel, padding=self.padding, stride=self.stride)

    @property
    def shaped_bias(self) -> Tensor:
        return self.bias[:, None, None]

    def output_shape(self, shape: Shape) -> Shape:
        """Return (channels, height, width) of the output; raise ValueError if the image is smaller than the kernel."""
        sides = [(side + 2 * self.padding - self.kernel) // self.stride + 1 for side in shape[1:]]
        if len(sides) != 2 or min(sides) < 1:
            raise ValueError(f"a convolution with a kernel of {self.kernel} does not fit images of shape {shape}")
        return (len(self.weight), *sides)

    def terms(self, shape: Shape) -> int:
        return self.weight.numel() * math.prod(self.output_shape(shape)[1:])

    def elements(self, shape: Shape) -> int:
        patches = self.inputs * math.prod(self.output_shape(shape)[1:])
        return max(patches, math.prod(shape), math.prod(self.output_shape(shape)))

    def extra_repr(self) -> str:
        channels = f"{self.weight.shape[1]}, {len(self.weight)}"
        return f"{channels}, kernel={self.kernel}, stride={self.stride}, padding={self.padding}"


@bare_box.register(Linear, Conv2d)
def _(layer: Affine, box: Box) -> Box:
    """Map the middle m and the half width r of the box separately: W m + b ± |W| r (Gowal et al., 2018)."""
    middle = layer.product((box.lower + box.upper) / 2, layer.weight) + layer.shaped_bias
    reach = layer.product((box.upper - box.lower) / 2, layer.weight.abs())
    return Box(middle - reach, middle + reach)


@pull_back.register(Linear, Conv2d)
def _(layer: Affine, forms: Forms, box: Box) -> Forms:
    dtype = forms.weight.dtype
    weight, bias = layer.weight.to(dtype), layer.shaped_bias.to(dtype)
    with torch.no_grad():
        size, executed = layer.sizes(Box(box.lower.to(dtype), box.upper.to(dtype)), torch.finfo(box.lower.dtype))
    pulled = layer.transposed(forms.weight, weight, tuple(box.lower.shape[1:]))
    return lowered(forms, pulled, times(forms, bias), size, executed)


@forward_zonotope.register(Linear, Conv2d)
def _(layer: Affine, zonotope: Zonotope, box: Box) -> Zonotope:
    dtype, shape = zonotope.centre.dtype, tuple(zonotope.centre.shape[1:])
    weight, bias = layer.weight.to(dtype), layer.shaped_bias.to(dtype)
    with torch.no_grad():
        furthest = size_of(zonotope)
        size, executed = layer.sizes(Box(-furthest, furthest), torch.finfo(box.lower.dtype))
        slack = executed + OWN * (layer.inputs + 64) * size
    radius, few = layer.product(zonotope.radius, weight.abs()), samples_at_once(layer.elements(shape))
    return mapped(zonotope, lambda x: layer.product(x, weight), bias, radius, slack, few)


@windowed.register(Conv2d)
def _(layer: Conv2d, shape: Shape) -> Windowed:
    bare = copy.copy(layer)  # with the same tensors
    bare.padding = 0
    return Windowed(bare, layer.kernel, layer.stride, (-layer.padding, -layer.padding))


class Scores(Readout):
    """z = W f + b. f (B, F) -> (B, classes).

    Margins are bounded as one sum, z[c] − z[j] = (W[c] − W[j]) f + b[c] − b[j], and not as the difference of two: over
    a box of features these bounds are tight.
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
    def bounds(box: Box, best: Tensor, tolerance: float) -> Margins:
        apart = torch.full((len(best), scores.classes), -torch.inf, dtype=torch.float64, device=best.device)
        row, other = apart.scatter(1, best[:, None], torch.inf).isneginf().nonzero().unbind(1)
        few = max(1, BLOCK // max(scores.linear.inputs, scores.classes))
        for some, others in zip(row.split(few), other.split(few), strict=True):
            forms = forms_of(margin_weights(best, some, others, scores.classes, torch.float64), some)
            apart[some, others] = lowest(pull_back(scores.linear, forms, box), box) - 2 * tolerance * UP
        logits = scores.linear.forward_box(box)
        size = torch.maximum(logits.lower.abs(), logits.upper.abs()).double().amax(1) + tolerance
        return Margins(known(apart, best), size)

    return bounds


@pull_back.register(Scores)
def _(scores: Scores, forms: Forms, box: Box) -> Forms:
    return pull_back(scores.linear, forms, box)


@arguments_of.register(Linear)
def _(layer: Linear) -> dict[str, Any]:
    outputs, inputs = layer.weight.shape
    return {"in_features": inputs, "out_features": outputs}


@arguments_of.register(Conv2d)
def _(layer: Conv2d) -> dict[str, Any]:
    outputs, inputs = layer.weight.shape[:2]
    sizes = {"in_channels": inputs, "out_channels": outputs}
    return {**sizes, "kernel": layer.kernel, "stride": layer.stride, "padding": layer.padding}


@arguments_of.register(Scores)
def _(scores: Scores) -> dict[str, Any]:
    return {"in_features": scores.linear.inputs, "classes": scores.classes}
