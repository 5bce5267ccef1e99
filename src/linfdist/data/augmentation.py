"""Random changes of training images: crops and flips, and small rotations, stretches and shifts (warps)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import grid_sample


@dataclass(frozen=True)
class Augment:
    """Describe the random changes, which are drawn for each image on its own.

    pad: pixels added on each side before the crop, of value 0 ("zero") or repeating the border ("edge").
    crop: side of the square that is cut out; None keeps the image's own height and width.
    flip: mirror left to right, with probability 1/2.
    pad_share: the probability of a random crop; other images are cropped at their centre.
    """

    pad: int = 0
    pad_mode: Literal["zero", "edge"] = "zero"
    flip: bool = False
    crop: int | None = None
    pad_share: float = 1.0

    def __post_init__(self) -> None:
        if self.pad < 0:
            raise ValueError(f"pad must not be negative, got {self.pad}")
        if self.pad_mode not in ("zero", "edge"):
            raise ValueError(f"pad_mode must be 'zero' or 'edge', got {self.pad_mode!r}")
        if self.crop is not None and self.crop < 1:
            raise ValueError(f"crop must be at least 1, got {self.crop}")
        if not 0 <= self.pad_share <= 1:
            raise ValueError(f"pad_share must be between 0 and 1, got {self.pad_share}")

    def size(self, height: int, width: int) -> tuple[int, int]:
        """Return the height and width of the result, given those of the images."""
        return (height, width) if self.crop is None else (self.crop, self.crop)

    def changes(self, height: int, width: int) -> bool:
        """Return whether the augmentation can change images of this size."""
        return self.flip or self.pad > 0 or self.size(height, width) != (height, width)


@dataclass(frozen=True)
class Choices:
    """The choices for each image of a batch, on the CPU: where its crop begins, and whether it is mirrored."""

    recipe: Augment
    top: Tensor  # (B,) int64
    left: Tensor
    mirrored: Tensor  # (B,) bool

    def __getitem__(self, some: slice) -> "Choices":
        """Select the choices for some of the images."""
        return Choices(self.recipe, self.top[some], self.left[some], self.mirrored[some])

    def apply(self, images: Tensor) -> Tensor:
        """Crop and flip images, uint8 or float32 (B, C, H, W) on any device -> the same (B, C, H', W').

        The result is the same on every device, because pixels are only copied.
        """
        _check(images)
        if not self.recipe.changes(*images.shape[2:]):
            return images
        return self._on_cpu(images) if images.device.type == "cpu" else self.gathered(images)

    def _on_cpu(self, images: Tensor) -> Tensor:
        """Crop and flip with NumPy, on one thread.

        The work is too small for several threads. Copying from a view of all crops goes row by row, unlike torch's
        indexing.
        """
        source = _padded(images.numpy(), self.recipe)
        crops = np.lib.stride_tricks.sliding_window_view(source, self.recipe.size(*images.shape[2:]), axis=(2, 3))
        crops = crops.transpose(0, 2, 3, 1, 4, 5)  # (B, top, left, C, H', W')
        result = crops[np.arange(len(images)), self.top.numpy(), self.left.numpy()]  # (B, C, H', W')
        mirrored = self.mirrored.numpy().nonzero()[0]
        if len(mirrored):
            result[mirrored] = result[mirrored, ..., ::-1]
        return torch.from_numpy(result)

    def gathered(self, images: Tensor) -> Tensor:
        """Do the same as `_on_cpu` by gathering pixels from their sources, in a few operations on the device."""
        height, width = images.shape[2:]
        rows, columns = self.recipe.size(height, width)
        chosen = torch.stack([self.top, self.left, self.mirrored.long()])  # small, and so sent in one piece
        top, left, mirrored = send(chosen, images.device)[:, :, None]
        row = top + torch.arange(rows, device=images.device) - self.recipe.pad  # (B, H')
        column = torch.arange(columns, device=images.device)
        column = left + torch.where(mirrored > 0, columns - 1 - column, column) - self.recipe.pad  # (B, W')
        image = torch.arange(len(images), device=images.device)[:, None, None, None]
        channel = torch.arange(images.shape[1], device=images.device)[:, None, None]
        from_row, from_column = row.clamp(0, height - 1)[:, None, :, None], column.clamp(0, width - 1)[:, None, None]
        result = images[image, channel, from_row, from_column]  # (B, C, H', W')
        if self.recipe.pad_mode == "edge" or not self.recipe.pad:
            return result
        inside = ((row >= 0) & (row < height))[:, None, :, None] & ((column >= 0) & (column < width))[:, None, None]
        return result.where(inside, torch.zeros((), dtype=images.dtype, device=images.device))


def draw(recipe: Augment, shape: Sequence[int], generator: torch.Generator) -> Choices:
    """Draw the changes of a batch (B, C, H, W) on the CPU, from `generator` alone.

    The order is rows, columns, flips, shares. The same state gives the same choices on every device and number of
    threads.
    """
    batch, _, height, width = shape
    rows, columns = recipe.size(height, width)
    spare_rows, spare_columns = height + 2 * recipe.pad - rows, width + 2 * recipe.pad - columns
    if min(spare_rows, spare_columns) < 0:
        raise ValueError(f"cannot crop {rows} × {columns} from images of {height} × {width} with padding {recipe.pad}")
    nothing = torch.zeros(batch, dtype=torch.int64)
    if not recipe.changes(height, width):
        return Choices(recipe, nothing, nothing, nothing.bool())
    top = torch.randint(spare_rows + 1, (batch,), generator=generator)
    left = torch.randint(spare_columns + 1, (batch,), generator=generator)
    mirrored = torch.randint(2, (batch,), generator=generator).bool() if recipe.flip else nothing.bool()
    if recipe.pad_share < 1:
        still = torch.rand(batch, generator=generator) >= recipe.pad_share
        top[still], left[still] = spare_rows // 2, spare_columns // 2
    return Choices(recipe, top, left, mirrored)


def augment(images: Tensor, recipe: Augment, generator: torch.Generator) -> Tensor:
    """Crop and flip at random: uint8 or float32 (B, C, H, W) -> the same (B, C, H', W'), on the device of the images.

    Works on pixels, before any normalisation. The same state of `generator` gives the same result.
    """
    _check(images)
    return draw(recipe, images.shape, generator).apply(images)


def send(tensor: Tensor, device: torch.device) -> Tensor:
    """Move a tensor from the CPU to a device; to a GPU asynchronously, from pinned memory."""
    if device.type == "cuda" and tensor.device.type == "cpu":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


def _check(images: Tensor) -> None:
    if images.dtype not in (torch.uint8, torch.float32) or images.dim() != 4:
        raise ValueError(f"need uint8 or float32 (B, C, H, W), got {images.dtype} {tuple(images.shape)}")


def _padded(images: NDArray[Any], recipe: Augment) -> NDArray[Any]:
    pad = recipe.pad
    if pad == 0:
        return images
    batch, channels, height, width = images.shape
    result = np.zeros((batch, channels, height + 2 * pad, width + 2 * pad), images.dtype)
    middle = result[:, :, pad:-pad]
    middle[..., pad:-pad] = images
    if recipe.pad_mode == "edge":
        middle[..., :pad] = images[..., :1]
        middle[..., -pad:] = images[..., -1:]
        result[:, :, :pad] = middle[:, :, :1]
        result[:, :, -pad:] = middle[:, :, -1:]
    return result


@dataclass(frozen=True)
class Warp:
    """Describe the random maps of the plane, which are drawn for each image on its own.

    turn: degrees, in both directions. stretch: each side becomes up to 1 + stretch times as long, or as short.
    slide: pixels, whole or not, in both directions and along both sides.
    share: the probability that an image is warped; the others stay as they are.
    """

    turn: float = 0.0
    stretch: float = 0.0
    slide: float = 0.0
    share: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise ValueError(f"the share of warped images must be between 0 and 1, got {self.share}")
        for name in ("turn", "stretch", "slide"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be a number that is not negative, got {getattr(self, name)}")

    @property
    def changes(self) -> bool:
        """Return whether the warp can change images."""
        return self.share > 0 and max(self.turn, self.stretch, self.slide) > 0

    def draw(self, batch: int, generator: torch.Generator) -> Tensor:
        """Draw for each image of a batch, on the CPU: whether it is warped, then five numbers in [-1, 1). (B, 6)

        The numbers come from `generator` alone: the same state gives the same numbers on any number of threads.
        """
        drawn = torch.rand(batch, 6, generator=generator, dtype=torch.float32)
        return torch.cat([(drawn[:, :1] < self.share).float(), 2 * drawn[:, 1:] - 1], 1)

    def apply(self, pixels: Tensor, drawn: Tensor) -> Tensor:
        """Warp images by the drawn numbers: float32 (B, C, H, W) in [0, 1] -> the same, on their device.

        Values between pixels are interpolated, and what comes in from outside repeats the border. Interpolation rounds:
        another kind of device, or another instruction set, may give other last bits. The number of threads and the
        number of images at a time do not change them.
        """
        (chosen,) = drawn[:, 0].nonzero(as_tuple=True)
        if not len(chosen):
            return pixels
        places = self._places(send(drawn[chosen, 1:], pixels.device), *pixels.shape[2:])
        chosen = send(chosen, pixels.device)
        warped = grid_sample(pixels[chosen], places, padding_mode="border", align_corners=False)
        return pixels.index_copy(0, chosen, warped.clamp(0, 1))

    def _places(self, drawn: Tensor, height: int, width: int) -> Tensor:
        """Return where each pixel of the results comes from, in torch's coordinates from -1 to 1: (B, H, W, 2).

        Torch's own `affine_grid` does this by a product of small matrices, which takes half of the time of a warp.
        """
        # All five are those of the place that is looked up: the picture moves the other way.
        turn, wide, high, right, down = drawn[:, :, None, None].unbind(1)  # (B, 1, 1) each
        angle = turn * math.radians(self.turn)
        wide, high = (torch.exp(side * math.log1p(self.stretch)) for side in (wide, high))
        x, y = (wide * _middles(width, drawn), high * _middles(height, drawn)[:, None])  # in pixels, from the centre
        across = angle.cos() * x - angle.sin() * y + right * self.slide
        along = angle.sin() * x + angle.cos() * y + down * self.slide
        return torch.stack([across * (2 / width), along * (2 / height)], 3)


def _middles(size: int, like: Tensor) -> Tensor:
    """Return the middles of a side's pixels, measured from its centre."""
    return torch.arange(size, dtype=like.dtype, device=like.device) - (size - 1) / 2
