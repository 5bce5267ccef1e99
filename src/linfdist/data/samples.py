"""Convert samples, labels and radii in memory; refuse what would have to be guessed."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

MOST_CHANNELS = 4  # of images whose channels come last
PIXELS = (torch.uint8, torch.float16, torch.bfloat16, torch.float32, torch.float64)  # types of samples


def check_plain(tensor: Tensor, name: str) -> None:
    """Raise TypeError unless it is an ordinary tensor: dense, with one shape, with values of its own."""
    if type(tensor) not in (Tensor, nn.Parameter):
        raise TypeError(f"{name} must be a plain tensor, got {type(tensor).__name__}")
    if tensor.is_nested or tensor.layout != torch.strided or tensor.is_meta:
        kind = "nested" if tensor.is_nested else "without values" if tensor.is_meta else str(tensor.layout)
        raise TypeError(f"{name} must be an ordinary dense tensor, but it is {kind}")
    if tensor.is_quantized:
        raise TypeError(f"{name} must be an ordinary tensor, but it is quantised: call .dequantize() first")


def plain_array(values: Any, name: str) -> NDArray[Any]:
    """Return a plain array of numbers.

    Subclasses carry more: masks, units, matrix products. Objects with an index, such as those of pandas, carry names
    that would have to be compared. Both are refused with TypeError. Lists and tuples become arrays.
    """
    if type(values) not in (np.ndarray, np.memmap, list, tuple):
        hint = "; fill in what is masked first (numpy.ma.filled)" if isinstance(values, np.ma.MaskedArray) else ""
        raise TypeError(f"{name} must be a plain NumPy array or tensor, got {type(values).__name__}{hint}")
    return np.asarray(values)


def check_type(dtype: torch.dtype, name: str) -> None:
    """Raise TypeError for samples of a type without a known scale: 1 may be white, or almost black."""
    if dtype not in PIXELS:
        kind = str(dtype).removeprefix("torch.")
        raise TypeError(
            f"{name}: must be bytes (uint8) or floats in [0, 1], got {kind}; for levels of 0 to 255, convert to uint8"
        )


def as_pixels(images: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return bytes as pixels in [0, 1], k/255 rounded once; floats are pixels already, and are only cast.

    It gives the same bits on every device: torch on CUDA replaces division by a Python number by a multiplication.
    """
    if images.dtype != torch.uint8:
        check_type(images.dtype, "images")
        return images.to(dtype)
    return images.to(dtype).div_(torch.full((), 255.0, dtype=dtype, device=images.device))


def as_samples(values: Any, name: str = "images") -> Tensor:
    """Return samples as a tensor (N, C, H, W) on the CPU, bytes or floats as they are.

    Rows of features (N, F) become (N, F, 1, 1). Gray images (N, H, W) get a channel. In NumPy arrays the channels of
    images may come last, as (N, H, W, C).
    """
    if isinstance(values, Tensor):
        check_plain(values, name)
        samples = values.detach().cpu()
    else:
        array = plain_array(values, name)
        if array.ndim == 4 and array.shape[3] <= MOST_CHANNELS < array.shape[1]:
            array = array.transpose(0, 3, 1, 2)
        samples = _tensor(array, name)
    check_type(samples.dtype, name)
    if samples.dim() == 2:
        return samples[:, :, None, None]
    return samples[:, None] if samples.dim() == 3 else samples


def as_numbers(values: Any, name: str) -> Tensor:
    """Return a tensor as it is, and a NumPy array as a tensor of its numbers, exactly."""
    if isinstance(values, Tensor):
        check_plain(values, name)
        return values
    return _tensor(plain_array(values, name), name)


def _tensor(array: NDArray[Any], name: str) -> Tensor:
    if array.dtype.kind not in "buif" or array.dtype.itemsize > 8:
        raise TypeError(f"{name}: must be bytes (uint8) or floats in [0, 1], got {array.dtype}")
    return torch.tensor(array.astype(array.dtype.newbyteorder("=")))  # a copy: an array may be read-only, or backwards


def check_labels(classes: int, y: Tensor, count: int) -> None:
    """Raise unless y are `count` labels, each one of so many classes."""
    if not isinstance(y, Tensor) or y.dtype.is_floating_point or y.dtype.is_complex or y.dtype == torch.bool:
        raise TypeError(f"y must be a tensor of integers, got {y.dtype if isinstance(y, Tensor) else type(y).__name__}")
    check_plain(y, "y")
    if tuple(y.shape) != (count,):
        raise ValueError(f"y must have shape ({count},), one class per image; got {tuple(y.shape)}")
    labels = y.tolist()  # minima of some kinds of integers are beyond torch
    if labels and not (min(labels) >= 0 and max(labels) < classes):
        raise ValueError(f"y must hold classes 0 to {classes - 1}, got {min(labels)} to {max(labels)}")
