"""Pixels to the range that training likes, inside the model: radii outside stay in pixels."""

import math
from collections.abc import Sequence
from fractions import Fraction

import torch
from torch import Tensor, nn

from ..eps import round_up
from .base import Box, LipschitzModule, Rounding, Shape
from .rounding import largest

NARROWEST = 2.0**-20  # high - low of a Clip: below it, the slope would be so large that rounding decides


class Normalize(LipschitzModule):
    """y[b, c] = (x[b, c] - mean[c]) / std, with one std for all channels, so that an ε-ball stays a ball (of ε / std).

    x (B, C, H, W) -> (B, C, H, W). `mean` (C, 1, 1) and `std` () are buffers, saved with the weights.
    """

    repeatable = True
    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float], std: float) -> None:
        super().__init__()
        if not len(mean) or not all(math.isfinite(value) for value in mean):
            raise ValueError(f"mean must be one finite number per channel, got {mean!r}")
        _check_std(std)
        self.register_buffer("mean", torch.tensor(mean, dtype=torch.get_default_dtype())[:, None, None])  # (C, 1, 1)
        self.register_buffer("std", torch.tensor(std, dtype=torch.get_default_dtype()))  # ()
        self.register_load_state_dict_post_hook(_check_loaded)

    @property
    def lipschitz(self) -> float:
        """1/std, rounded up, for the std in use: as a float32 it is not quite the number given."""
        return round_up(1 / Fraction(self.std.item()))

    def forward(self, x: Tensor, p: float | Tensor = math.inf) -> Tensor:
        channels = self.mean.shape[0]
        if x.dim() != 4 or x.shape[1] != channels:
            raise ValueError(f"need images (B, {channels}, H, W), got {tuple(x.shape)}")
        return (x - self.mean) / self.std

    def forward_box(self, box: Box) -> Box:
        """The same two float operations on both ends: rounded subtraction and division by std > 0 are monotone, so
        this encloses (x − mean)/std as executed.
        """
        return Box(self(box.lower), self(box.upper))

    def output_shape(self, shape: Shape) -> Shape:
        return shape

    def rounding(self, size: Fraction, unit: Fraction) -> Rounding:
        """Two operations, each no larger than the larger of the two."""
        shifted = size + largest(self.mean)
        return Rounding.of(max(shifted / Fraction(self.std.item()), shifted), 2, unit)

    def check(self, name: str) -> None:
        if self.std.dim() != 0:
            raise ValueError(
                f"{name}.std must be one number, so that a ball of pixels stays a ball; got {tuple(self.std.shape)}"
            )
        _check_std(self.std.item(), f"{name}.std")

    def extra_repr(self) -> str:
        return f"mean={self.mean.flatten().tolist()}, std={self.std.item()}" if not self.std.is_meta else ""


def _check_std(std: float, name: str = "std") -> None:
    """The order of bounds and the Lipschitz constant hang on it."""
    if not torch.finfo(torch.float32).tiny <= std < math.inf:
        raise ValueError(f"{name} must be positive, finite and no denormal, got {std!r}")


class Clip(LipschitzModule):
    """g(x) = (x − low) / (high − low), but 0 for pixels below `low` and 1 for pixels above `high`.

    x of any shape -> same shape. For pixels of [0, 1], with 0 <= low < high <= 1. The slope between the two is
    1 / (high − low), and this is the Lipschitz constant, rounded up: radii shrink by it. In return, a pixel that is
    below `low` or above `high` by more than ε cannot be moved by an attack at all: its interval becomes a point.

    `low` and `high` () are buffers, saved with the weights.
    """

    repeatable = True
    low: Tensor
    high: Tensor

    def __init__(self, low: float, high: float) -> None:
        super().__init__()
        _check_bounds(low, high)
        dtype = torch.get_default_dtype()
        in_use = torch.tensor([low, high], dtype=dtype, device="cpu").tolist()
        _check_bounds(in_use[0], in_use[1])
        self.register_buffer("low", torch.tensor(low, dtype=dtype))  # ()
        self.register_buffer("high", torch.tensor(high, dtype=dtype))  # ()
        self.register_load_state_dict_post_hook(_check_loaded)

    @property
    def lipschitz(self) -> float:
        """1 / (high − low) for the numbers in use, rounded up."""
        return round_up(1 / self.span())

    def forward(self, x: Tensor, p: float | Tensor = math.inf) -> Tensor:
        return ((x - self.low) / (self.high - self.low)).clamp(0.0, 1.0)

    def forward_box(self, box: Box) -> Box:
        """The same float operations on both ends: each of them keeps the order of its results, rounding included."""
        return Box(self(box.lower), self(box.upper))

    def output_shape(self, shape: Shape) -> Shape:
        return shape

    def rounding(self, size: Fraction, unit: Fraction) -> Rounding:
        """A subtraction and a division, each rounded once; where the quotient is larger than 1, clipping removes it."""
        shifted = size + Fraction(self.low.item())
        return Rounding(Fraction(1), max(shifted, shifted / self.span()), 2 * unit)

    def check(self, name: str) -> None:
        if self.low.dim() or self.high.dim():
            raise ValueError(f"{name}.low and {name}.high must be one number each, so that a ball stays a ball")
        _check_bounds(self.low.item(), self.high.item(), name)

    def extra_repr(self) -> str:
        return f"{self.low.item()}, {self.high.item()}" if not self.low.is_meta else ""

    def span(self) -> Fraction:
        """What `forward` divides by: the rounded difference."""
        return Fraction((self.high - self.low).item())


def check_clip(clip: object) -> tuple[float, float] | None:
    """The bounds (low, high), or None for no clipping; TypeError or ValueError for what cannot be bounds."""
    if clip is None:
        return None
    numbers = isinstance(clip, Sequence) and all(type(bound) in (int, float) for bound in clip)
    if not isinstance(clip, Sequence) or not numbers or len(clip) != 2:
        raise TypeError(f"clip must be two numbers, [low, high], or None; got {clip!r}")
    _check_bounds(*clip)
    return clip[0], clip[1]


def _check_bounds(low: float, high: float, name: str = "clip") -> None:
    """The order of bounds and the Lipschitz constant hang on it. NaN fails too."""
    if not 0 <= low < high <= 1:
        raise ValueError(f"{name} needs bounds with 0 <= low < high <= 1, got low = {low!r} and high = {high!r}")
    if not high - low >= NARROWEST:
        raise ValueError(f"{name} needs bounds at least 2^-20 apart, got low = {low!r} and high = {high!r}")


def _check_loaded(layer: nn.Module, _: object) -> None:
    if isinstance(layer, Normalize) and not layer.std.is_meta:
        _check_std(layer.std.item())
    if isinstance(layer, Clip) and not layer.low.is_meta:
        _check_bounds(layer.low.item(), layer.high.item())
