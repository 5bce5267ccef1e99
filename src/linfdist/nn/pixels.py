"""Layers of pixels: crops, views, mirror pairs, means of blocks, flattening, normalisation and clipping.

They are part of the network, so that radii outside are in pixels.
"""

import math
import re
from collections.abc import Sequence
from fractions import Fraction

import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d

from ..eps import round_up
from .base import Box, LipschitzModule, Rounding, Shape, largest, mean_rounding, mean_slack, widened


def centred(shape: Shape, size: int) -> tuple[int, int]:
    """Find where the middle `size` × `size` pixels of (..., H, W) begin; of two middles, the upper left."""
    height, width = shape[-2:]
    return (height - size) // 2, (width - size) // 2


class CenterCrop(LipschitzModule):
    """The middle of an image, (B, C, H, W) -> (B, C, size, size) (Section 7.1: TinyImageNet's 56×56).

    Where a margin is odd, the smaller half is cut off at the top or left. Images of that size pass unchanged:
    augmentation has cropped them.
    """

    repeatable = True
    lipschitz = 1.0

    def __init__(self, size: int) -> None:
        super().__init__()
        if size < 1:
            raise ValueError(f"the size of a crop must be at least 1, got {size}")
        self.size = size

    def forward(self, x: Tensor, p: float | Tensor = math.inf) -> Tensor:
        height, width = x.shape[-2:]
        if height < self.size or width < self.size:
            raise ValueError(f"cannot crop an image of {height}x{width} to {self.size}x{self.size}")
        top, left = centred(x.shape, self.size)
        return x[..., top : top + self.size, left : left + self.size]  # (B, C, size, size)

    def forward_box(self, box: Box) -> Box:
        return Box(self(box.lower), self(box.upper))

    def output_shape(self, shape: Shape) -> Shape:
        return (*shape[:-2], self.size, self.size)

    def rounding(self, size: Fraction, unit: Fraction) -> Rounding:
        return Rounding.of(size, 0, unit)

    def extra_repr(self) -> str:
        return f"{self.size}"


_SHIFT = re.compile(r"shift:(-?[0-9]{1,4}),(-?[0-9]{1,4})")


class View(LipschitzModule):
    """Copies every pixel of the view from one of the image's, (B, C, H, W) -> (B, C, H, W).

    "same": the image itself. "mirror": left and right exchanged. "shift:1,-2": all pixels one row down and two columns
    to the left (negative numbers: up, and to the left); what comes in at the edges repeats the pixels there, as padding
    in augmentation with repeated edges does.

    Nothing is computed, so views are exact, and 1-Lipschitz.
    """

    repeatable = True
    lipschitz = 1.0

    def __init__(self, name: str) -> None:
        super().__init__()
        shift = _SHIFT.fullmatch(name) if isinstance(name, str) else None
        if shift is None and name not in ("same", "mirror"):
            raise ValueError(
                f"no view is called {name!r}: take 'same', 'mirror', or a shift by rows and columns such as 'shift:1,0'"
            )
        self.view = name
        self.down, self.right = (int(shift[1]), int(shift[2])) if shift else (0, 0)

    def forward(self, x: Tensor, p: float | Tensor = math.inf) -> Tensor:
        self.output_shape(x.shape[1:])
        if self.view == "same":
            return x
        if self.view == "mirror":
            return x.flip(3)
        rows, columns = self.places(x.shape, x.device)
        return x.index_select(2, rows).index_select(3, columns)

    def forward_box(self, box: Box) -> Box:
        return Box(self(box.lower), self(box.upper))

    def output_shape(self, shape: Shape) -> Shape:
        if len(shape) != 3:
            raise ValueError(f"a view is one of an image (C, H, W), not of {tuple(shape)}")
        if abs(self.down) >= shape[1] or abs(self.right) >= shape[2]:
            raise ValueError(f"{self.view!r} moves an image of {shape[1]}x{shape[2]} pixels out of sight")
        return shape

    def rounding(self, size: Fraction, unit: Fraction) -> Rounding:
        return Rounding.of(size, 0, unit)

    def extra_repr(self) -> str:
        return repr(self.view)

    def places(self, shape: Shape, device: torch.device) -> tuple[Tensor, Tensor]:
        """Return the rows and columns of the image (..., H, W) that those of the view are copied from."""
        height, width = shape[-2:]
        rows = (torch.arange(height, device=device) - self.down).clamp(0, height - 1)
        columns = (torch.arange(width, device=device) - self.right).clamp(0, width - 1)
        return rows, columns.flip(0) if self.view == "mirror" else columns


class MirrorPairs(LipschitzModule):
    """The larger and the smaller of each pixel and its mirror image, (B, C, H, W) -> (B, C, H, W).

    y[..., j] = max(x[..., j], x[..., W − 1 − j]) in the left half, and the minimum of the same two in the right half; a
    column in the middle stays as it is. So an image and its mirror image give the same output, and training needs only
    one of them. Nothing is rounded, and the layer is 1-Lipschitz. Where both are equal, each gets half of the gradient.
    """

    repeatable = True
    lipschitz = 1.0

    def forward(self, x: Tensor, p: float | Tensor = math.inf) -> Tensor:
        self.output_shape(x.shape[1:])
        mirrored, left = x.flip(3), (x.shape[3] + 1) // 2
        larger, smaller = torch.maximum(x, mirrored), torch.minimum(x, mirrored)
        return torch.cat([larger[..., :left], smaller[..., left:]], 3)

    def forward_box(self, box: Box) -> Box:
        """Bound exactly: maximum and minimum grow with every pixel."""
        return Box(self(box.lower), self(box.upper))

    def output_shape(self, shape: Shape) -> Shape:
        if len(shape) != 3:
            raise ValueError(f"mirror pairs are those of an image (C, H, W), not of {tuple(shape)}")
        return shape

    def rounding(self, size: Fraction, unit: Fraction) -> Rounding:
        return Rounding.of(size, 0, unit)


class Flatten(LipschitzModule):
    """(B, C, H, W) -> (B, C*H*W), row-major."""

    repeatable = True
    lipschitz = 1.0

    def forward(self, x: Tensor, p: float | Tensor = math.inf) -> Tensor:
        return x.flatten(1)

    def forward_box(self, box: Box) -> Box:
        return Box(box.lower.flatten(1), box.upper.flatten(1))

    def output_shape(self, shape: Shape) -> Shape:
        return (math.prod(shape),)

    def rounding(self, size: Fraction, unit: Fraction) -> Rounding:
        return Rounding.of(size, 0, unit)


LARGEST_BLOCK = (
    1024  # pixels of a block's side: far beyond every image, and small enough for the bounds of the rounding
)


class MeanPool(LipschitzModule):
    """For each size k, the means of the k×k blocks that tile the image; all of them in one vector.

    (B, C, H, W) -> (B, F): for k of `sizes` in turn C·(H // k)·(W // k) means, channel by channel and row by row. Rows
    and columns that are left over at the bottom and at the right are dropped. Size 1 gives the pixels themselves.

    A mean moves by no more than its terms, so the layer is 1-Lipschitz; a change of a few pixels of a block moves it by
    only a fraction. Sums are rounded in an unknown order, so bounds get a slack.
    """

    lipschitz = 1.0

    def __init__(self, sizes: Sequence[int]) -> None:
        super().__init__()
        self.sizes = check_pool(sizes)
        if not self.sizes:
            raise ValueError("a MeanPool needs at least one size of blocks; got none")

    def forward(self, x: Tensor, p: float | Tensor = math.inf) -> Tensor:
        if x.dim() != 4:
            raise ValueError(f"a MeanPool takes images (B, C, H, W), got {tuple(x.shape)}")
        self.output_shape(x.shape[1:])
        return torch.cat([x.flatten(1) if k == 1 else avg_pool2d(x, k).flatten(1) for k in self.sizes], 1)

    def forward_box(self, box: Box) -> Box:
        """Take means of the ends in float64, and move them outwards by all that rounding in any order can do."""
        dtype = box.lower.dtype
        lower, upper = box.lower.double(), box.upper.double()
        furthest = torch.maximum(lower.abs(), upper.abs())
        parts = []
        for k in self.sizes:
            if k == 1:
                parts.append(Box(box.lower.flatten(1), box.upper.flatten(1)))
            else:
                low, high, size = (avg_pool2d(each, k).flatten(1) for each in (lower, upper, furthest))
                parts.append(widened(low, high, mean_slack(size, k * k, dtype), dtype))
        return Box(torch.cat([part.lower for part in parts], 1), torch.cat([part.upper for part in parts], 1))

    def output_shape(self, shape: Shape) -> Shape:
        """Count the means; ValueError if the image is smaller than a block."""
        if len(shape) != 3:
            raise ValueError(f"a MeanPool takes images (C, H, W), got {tuple(shape)}")
        channels, height, width = shape
        if max(self.sizes) > min(height, width):
            raise ValueError(f"an image of {height}x{width} has no block of {max(self.sizes)}x{max(self.sizes)} pixels")
        return (sum(channels * (height // k) * (width // k) for k in self.sizes),)

    def rounding(self, size: Fraction, unit: Fraction) -> Rounding:
        """Describe the rounding of the largest blocks; pixels are copied exactly."""
        side = max(self.sizes)
        return Rounding.of(size, 0, unit) if side == 1 else mean_rounding(size, side**2, unit)

    def extra_repr(self) -> str:
        return f"{list(self.sizes)}"


def check_pool(sizes: object) -> tuple[int, ...]:
    """Return the sizes of blocks as a tuple, which may be empty; raise TypeError or ValueError if they are invalid."""
    if not isinstance(sizes, Sequence) or not all(type(k) is int for k in sizes):
        raise TypeError(f"sizes of blocks must be a list of whole numbers such as [1, 2, 4], got {sizes!r}")
    if wrong := [k for k in sizes if not 1 <= k <= LARGEST_BLOCK]:
        raise ValueError(f"every size of a block must be between 1 and {LARGEST_BLOCK} pixels, got {wrong[0]}")
    if len(set(sizes)) < len(sizes):
        raise ValueError(f"sizes of blocks must not repeat, got {str(list(sizes))[:60]}")
    return tuple(sizes)


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
        """Do the same two float operations on both ends.

        Rounded subtraction and division by std > 0 are monotone, so this encloses (x − mean)/std as executed.
        """
        return Box(self(box.lower), self(box.upper))

    def output_shape(self, shape: Shape) -> Shape:
        return shape

    def rounding(self, size: Fraction, unit: Fraction) -> Rounding:
        """Describe two rounded operations, neither larger than the larger result."""
        shifted = size + largest(self.mean)
        return Rounding.of(max(shifted / Fraction(self.std.item()), shifted), 2, unit)

    def check(self, name: str) -> None:
        _check_std(self.std.item(), f"{name}.std")

    def extra_repr(self) -> str:
        return f"mean={self.mean.flatten().tolist()}, std={self.std.item()}" if not self.std.is_meta else ""


def _check_std(std: float, name: str = "std") -> None:
    """Raise ValueError for a std that would break the order of bounds or the Lipschitz constant."""
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
        """Do the same float operations on both ends: each keeps the order of its results, rounding included."""
        return Box(self(box.lower), self(box.upper))

    def output_shape(self, shape: Shape) -> Shape:
        return shape

    def rounding(self, size: Fraction, unit: Fraction) -> Rounding:
        """Describe the rounding of a subtraction and a division, each rounded once.

        Where the quotient is larger than 1, clipping removes it.
        """
        shifted = size + Fraction(self.low.item())
        return Rounding(Fraction(1), max(shifted, shifted / self.span()), 2 * unit)

    def check(self, name: str) -> None:
        _check_bounds(self.low.item(), self.high.item(), name)

    def extra_repr(self) -> str:
        return f"{self.low.item()}, {self.high.item()}" if not self.low.is_meta else ""

    def span(self) -> Fraction:
        """Return what `forward` divides by: the rounded difference."""
        return Fraction((self.high - self.low).item())


def check_clip(clip: object) -> tuple[float, float] | None:
    """Return the bounds (low, high), or None for no clipping; raise TypeError or ValueError if they are invalid."""
    if clip is None:
        return None
    numbers = isinstance(clip, Sequence) and all(type(bound) in (int, float) for bound in clip)
    if not isinstance(clip, Sequence) or not numbers or len(clip) != 2:
        raise TypeError(f"clip must be two numbers, [low, high], or None; got {clip!r}")
    _check_bounds(*clip)
    return clip[0], clip[1]


def _check_bounds(low: float, high: float, name: str = "clip") -> None:
    """Raise ValueError for bounds that would break the order or the Lipschitz constant, NaN included."""
    if not 0 <= low < high <= 1:
        raise ValueError(f"{name} needs bounds with 0 <= low < high <= 1, got low = {low!r} and high = {high!r}")
    if not high - low >= NARROWEST:
        raise ValueError(f"{name} needs bounds at least 2^-20 apart, got low = {low!r} and high = {high!r}")


def _check_loaded(layer: nn.Module, _: object) -> None:
    if isinstance(layer, Normalize) and not layer.std.is_meta:
        _check_std(layer.std.item())
    if isinstance(layer, Clip) and not layer.low.is_meta:
        _check_bounds(layer.low.item(), layer.high.item())
