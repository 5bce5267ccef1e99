"""What comes before the first dist layer of a frozen network: its 8-bit pixels, cropped, clipped, averaged over blocks.

All of it is monotone and without rounding, so that a box of images is mapped to a box of inputs by its two ends.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d

from ..nn import CenterCrop
from .bounds import INT16, INT32

MAX_K = 7  # 255 · 2^7 is the last pixel that fits int16
LEVELS = 255  # the largest value of a pixel
_FLOAT32, _FLOAT64 = 2**24, 2**53  # float types hold all whole numbers up to here, so that sums of them are exact
_INT64 = 2**62


@dataclass(frozen=True)
class Pool:
    """Means of the s × s blocks that tile the image, for each s of `sizes`, times `steps`: whole numbers.

    (B, C, H, W) -> (B, I), in the order of `nn.MeanPool`. Raises ValueError unless `steps` is a multiple of every s².
    """

    sizes: tuple[int, ...]
    steps: int

    @classmethod
    def of(cls, sizes: Sequence[int]) -> "Pool":
        """Build it with as few steps as these sizes allow: 64 for 2, 4 and 8."""
        return cls(tuple(sizes), math.lcm(*(s * s for s in sizes)))

    def __post_init__(self) -> None:
        if not self.sizes or len(set(self.sizes)) < len(self.sizes) or min(self.sizes) < 1:
            raise ValueError(f"the sizes of blocks are {list(self.sizes)[:9]}, expected different ones from 1")
        if not 1 <= self.steps <= INT32 or any(self.steps % (s * s) for s in self.sizes):
            raise ValueError(
                f"means of blocks of {list(self.sizes)[:9]} pixels are whole numbers times {self.steps}: expected a "
                f"multiple of all squares, at most {INT32}; pool by fewer sizes"
            )

    def count(self, shape: Sequence[int]) -> int:
        """Count the means of an image (C, H, W); raise ValueError if it is smaller than a block."""
        channels, height, width = shape
        if max(self.sizes) > min(height, width):
            raise ValueError(f"an image of {height}x{width} has no block of {max(self.sizes)}x{max(self.sizes)} pixels")
        return sum(channels * (height // s) * (width // s) for s in self.sizes)

    def __call__(self, x: Tensor, most: int) -> Tensor:
        """Sum blocks of integers (B, C, H, W), none larger than `most`, times steps / s²: (B, I) int64."""
        largest = max(self.sizes) ** 2 * most
        floats = torch.float32 if largest <= _FLOAT32 else torch.float64
        if largest > _FLOAT64 or self.steps * most > _INT64:
            raise ValueError(f"sums of {largest} times {self.steps} are too large for 64 bits")
        values = x.to(floats)
        sums = [(avg_pool2d(values, s, divisor_override=1).flatten(1), self.steps // (s * s)) for s in self.sizes]
        return torch.cat([each.long() * factor for each, factor in sums], 1)


@dataclass(frozen=True)
class Stem:
    """Maps 8-bit images (B, C, H, W) to integers (B, I): pixels times 2^k, then crop, clip and pool if given.

    crop: the side of the middle that is kept; clip: the least and the largest value that is left, on the grid of 2^k
    steps a level; pool: see `Pool`. Raises ValueError for what docs/format.md does not allow.
    """

    k: int
    crop: int | None = None
    clip: tuple[int, int] | None = None
    pool: Pool | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.k <= MAX_K:
            raise ValueError(f"k = {self.k}: must be between 0 and {MAX_K}, or 255 * 2^k does not fit 16 bits")
        if self.clip is not None and not 0 <= self.clip[0] <= self.clip[1] <= LEVELS << self.k:
            raise ValueError(f"pixels are clipped to {self.clip}, expected 0 <= low <= high <= {LEVELS << self.k}")
        if LEVELS * self.steps > INT32:
            raise ValueError(
                f"white is {LEVELS * self.steps} units, too much for 32 bits: take a smaller k, or pool by fewer sizes"
            )

    @property
    def steps(self) -> int:
        """The grid's steps a level: an input changes by at most that if no pixel changes by more than one level."""
        return 2**self.k * (1 if self.pool is None else self.pool.steps)

    def size(self, shape: Sequence[int]) -> int:
        """Count the inputs I, for images of this shape (C, H, W)."""
        shape = shape if self.crop is None else (shape[0], self.crop, self.crop)
        return math.prod(shape) if self.pool is None else self.pool.count(shape)

    def __call__(self, images: Tensor) -> Tensor:
        """Map images uint8 (B, C, H, W) to the inputs of the first layer: (B, I) int16, or int32 where needed."""
        if self.pool is None:
            x = self.cropped(images).flatten(1).to(torch.int16) << self.k
            return x if self.clip is None else x.clamp(*self.clip)
        dtype = torch.int16 if LEVELS * self.steps <= INT16 else torch.int32
        x = self.cropped(images)
        if self.clip is not None:
            return self.pool((x.to(torch.int32) << self.k).clamp(*self.clip), LEVELS << self.k).to(dtype)
        return (self.pool(x, LEVELS) << self.k).to(dtype)

    def parts(self, pixels: Tensor, parts: int) -> Tensor:
        """Do the same on a grid that is `parts` times finer: pixels int64 (B, C, H, W) to inputs (B, I) int64.

        So the ends of balls of images can lie between the grid's values; the result is still exact.
        """
        x, most = self.cropped(pixels), (LEVELS << self.k) * parts
        if self.clip is not None:
            x = x.clamp(self.clip[0] * parts, self.clip[1] * parts)
        return x.flatten(1) if self.pool is None else self.pool(x, most)

    def cropped(self, x: Tensor) -> Tensor:
        """Crop images (B, C, H, W) to their middle; leave them whole if there is no crop."""
        return x if self.crop is None else CenterCrop(self.crop)(x)
