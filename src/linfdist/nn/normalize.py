"""Pixels to the range that training likes, inside the model: radii outside stay in pixels."""

import math
from collections.abc import Sequence
from fractions import Fraction

import torch
from torch import Tensor, nn

from ..eps import round_up
from .base import Box, LipschitzModule, Rounding, Shape
from .rounding import largest


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


def _check_loaded(layer: nn.Module, _: object) -> None:
    if isinstance(layer, Normalize) and not layer.std.is_meta:
        _check_std(layer.std.item())
