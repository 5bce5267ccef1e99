"""Random crops and flips of batches, all images at once."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


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


def augment(images: Tensor, recipe: Augment, generator: torch.Generator) -> Tensor:
    """Crop and flip at random: uint8 or float32 (B, C, H, W) on the CPU -> the same (B, C, H', W').

    Works on pixels, before any normalisation. The draws come from `generator` alone, in the order rows, columns,
    flips, shares: the same state gives the same result, whatever the number of threads.
    """
    if images.dtype not in (torch.uint8, torch.float32) or images.dim() != 4 or images.device.type != "cpu":
        raise ValueError(
            f"need uint8 or float32 (B, C, H, W) on the CPU, got {images.dtype} {tuple(images.shape)} {images.device}"
        )
    batch, _, height, width = images.shape
    rows, columns = (recipe.crop or height), (recipe.crop or width)
    spare_rows, spare_columns = height + 2 * recipe.pad - rows, width + 2 * recipe.pad - columns
    if min(spare_rows, spare_columns) < 0:
        raise ValueError(f"cannot crop {rows} × {columns} from images of {height} × {width} with padding {recipe.pad}")
    if not (spare_rows or spare_columns or recipe.flip):
        return images

    top = torch.randint(spare_rows + 1, (batch,), generator=generator).numpy()
    left = torch.randint(spare_columns + 1, (batch,), generator=generator).numpy()
    mirrored = torch.randint(2, (batch,), generator=generator).numpy().nonzero()[0] if recipe.flip else None
    if recipe.pad_share < 1:
        still = torch.rand(batch, generator=generator).numpy() >= recipe.pad_share
        top[still], left[still] = spare_rows // 2, spare_columns // 2
    # NumPy, on one thread: the work is too small to be worth waking others, and copies out of a view of all crops
    # go row by row, which torch's indexing does not.
    source = _padded(images.numpy(), recipe)
    crops = np.lib.stride_tricks.sliding_window_view(source, (rows, columns), axis=(2, 3))
    crops = crops.transpose(0, 2, 3, 1, 4, 5)  # (B, top, left, C, H', W')
    result = crops[np.arange(batch), top, left]  # (B, C, H', W')
    if mirrored is not None:
        result[mirrored] = result[mirrored, ..., ::-1]
    return torch.from_numpy(result)


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
