"""Convert samples, labels and radii in memory; refuse what would have to be guessed."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..errors import closest, described
from .base import Dataset

MOST_CHANNELS = 4  # of images whose channels come last
PIXELS = (torch.uint8, torch.float16, torch.bfloat16, torch.float32, torch.float64)  # types of samples
MODES = ("L", "LA", "RGB", "RGBA", "F")  # of Pillow's images whose numbers are the pixels that they show


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


def read(data: Any, name: str = "x") -> tuple[Any, Any]:
    """Return samples and their labels from any kind of data; labels are None if the data have none.

    data: samples alone, in a tensor or an array, which come back as they are; a tuple (samples, labels); one of
    `linfdist.data.load`; or anything that gives samples, pairs (sample, label) or batches of them, such as torch's
    `Dataset` and `DataLoader`. A data set is read once, in its own order. Raises TypeError that says what was given
    instead.
    """
    if isinstance(data, Tensor | np.ndarray):
        return data, None
    if isinstance(data, Dataset):
        return data.images, data.labels
    if isinstance(data, tuple) and len(data) == 2 and isinstance(data[0], Tensor | np.ndarray):
        return data
    listed = hasattr(data, "__getitem__") and hasattr(data, "__len__")  # torch asks no more of a data set
    if isinstance(data, str | os.PathLike | Mapping | nn.Module) or not (listed or isinstance(data, Iterable)):
        hint = "; linfdist.data.load loads data sets by name" if isinstance(data, str) else ""
        raise TypeError(
            f"{name} must be samples, or a data set of pairs (sample, label), in a tensor, an array, a Dataset or a "
            f"DataLoader, got {described(data)}{hint}"
        )
    return _joined(data, name)


def _joined(data: Any, name: str) -> tuple[Any, list[Any] | None]:
    """Put the samples and labels of a data set together."""
    from torch.utils.data import DataLoader

    batches = isinstance(data, DataLoader) and data.batch_sampler is not None
    entries = data if isinstance(data, Iterable) else (data[index] for index in range(len(data)))
    samples: list[Any] = []
    labels: list[Any] = []
    for index, entry in enumerate(entries):
        sample, label = _pair(entry, f"{name}: entry {index}")
        several = batches or isinstance(label, list | tuple) or np.ndim(label) > 0
        samples.extend(sample if several else [sample])
        if label is not None:
            labels.extend(_listed(label if several else [label]))
        if (label is None and labels) or len(labels) not in (0, len(samples)):
            raise ValueError(f"{name}: entry {index} does not have one label for each sample")
    if not samples:
        raise ValueError(f"{name}: there are none; give at least one")
    for index, sample in enumerate(samples):
        if sample.shape != samples[0].shape:
            sizes = f"{tuple(sample.shape)}, that of image 0 is {tuple(samples[0].shape)}"
            raise ValueError(f"{name}: all must have one shape, but that of image {index} is {sizes}")
        if str(sample.dtype) != str(samples[0].dtype):  # put together, bytes would become floats: 1 would be white
            types = f"{sample.dtype}, that of image 0 is {samples[0].dtype}"
            raise TypeError(f"{name}: all must have one type, but that of image {index} is {types}")
    stack: Callable[[list[Any]], Any] = torch.stack if isinstance(samples[0], Tensor) else np.stack
    return stack(samples), labels or None


def _pair(entry: Any, where: str) -> tuple[Any, Any]:
    """Return the sample and the label of an entry of a data set, or of a batch; the label is None if it has none."""
    from PIL.Image import Image

    sample, label = entry, None
    if isinstance(entry, tuple | list) and len(entry) in (1, 2):
        sample, label = entry[0], entry[-1] if len(entry) == 2 else None
    if isinstance(sample, np.ma.MaskedArray):
        raise TypeError(f"{where} is a masked array; fill in what is masked first (numpy.ma.filled)")
    if isinstance(sample, Image) and sample.mode not in MODES:  # its numbers are no brightness, such as a palette's
        raise TypeError(f"{where} is an image of Pillow in mode {sample.mode}: convert it to L or RGB first")
    nested = isinstance(sample, list | tuple)  # of which nobody can tell whether they are samples, or several of them
    found = sample if isinstance(sample, Tensor) else np.asarray(None if nested else sample)  # images of Pillow, too
    if found.ndim == 0:
        raise TypeError(f"{where} is neither a sample nor a pair (sample, label), but {described(entry)}")
    return found, label


def _listed(labels: Any) -> list[Any]:
    """Return labels as Python's own numbers and texts."""
    plain = (Tensor, np.ndarray, np.generic)
    if isinstance(labels, plain):
        return list(labels.tolist())
    return [each.item() if isinstance(each, plain) and np.ndim(each) == 0 else each for each in labels]


def as_tensor(values: Any, name: str = "images") -> Tensor:
    """Return samples as a tensor of the type and the shape that they have: bytes or floats."""
    if isinstance(values, Tensor):
        check_plain(values, name)
    samples = values.detach() if isinstance(values, Tensor) else _tensor(plain_array(values, name), name)
    check_type(samples.dtype, name)
    return samples


def as_samples(values: Any, name: str = "images") -> Tensor:
    """Return samples as a tensor (N, C, H, W) on the CPU, bytes or floats as they are.

    Rows of features (N, F) become (N, F, 1, 1). Gray images (N, H, W) get a channel. In NumPy arrays the channels of
    images may come last, as (N, H, W, C). `arranged` takes more, where a network says what its images are like.
    """
    samples = as_tensor(values, name).cpu()
    if not isinstance(values, Tensor) and samples.dim() == 4 and samples.shape[3] <= MOST_CHANNELS < samples.shape[1]:
        if 1 < max(samples.shape[2:]) <= MOST_CHANNELS:  # no images, but what a layer gives, as often as not
            raise ValueError(
                f"{name}: in an array of shape {tuple(samples.shape)} channels may come first or last: "
                "give a tensor (N, C, H, W)"
            )
        samples = samples.permute(0, 3, 1, 2) if samples.shape[2] > 1 else samples
    if samples.dim() == 2:
        return samples[:, :, None, None]
    return samples[:, None] if samples.dim() == 3 else samples


def arranged(samples: Tensor, shapes: Iterable[tuple[int, int, int]]) -> Tensor:
    """Return samples as (N, C, H, W), for a network that takes images (C, H, W) of one of these shapes.

    The shape says which axis is which: one image or several, their channels first or last, gray ones with or without a
    channel, rows of features. Where both fit, channels come first. What fits no shape is returned as it is, for the
    network to refuse.
    """
    size = tuple(samples.shape)
    for c, h, w in shapes:
        for tail, move in _layouts(c, h, w):
            if size in (tail, (*size[:1], *tail)):
                return move(samples[None] if size == tail else samples)
    return samples


def _layouts(c: int, h: int, w: int) -> Iterator[tuple[tuple[int, ...], Callable[[Tensor], Tensor]]]:
    """Yield the shapes that an image may have, and what makes (N, C, H, W) of several."""
    yield (c, h, w), lambda x: x
    yield (h, w, c), lambda x: x.movedim(-1, 1)
    if c == 1:
        yield (h, w), lambda x: x[:, None]
    if h == w == 1:
        yield (c,), lambda x: x[:, :, None, None]


def check_range(samples: Tensor, name: str = "images") -> None:
    """Raise ValueError for floats that are not finite, or outside [0, 1]."""
    if samples.dtype == torch.uint8 or not samples.numel():
        return
    if not (finite := samples.isfinite().flatten(1).all(1)).all():
        raise ValueError(f"{name}: the pixels of image {int((~finite).nonzero()[0])} are not all finite")
    lowest, highest = samples.aminmax()
    if lowest < 0 or highest > 1:
        hint = "; leave out what normalises images, such as a Normalize: networks do that themselves"
        if samples.shape[2:] == (1, 1):
            hint = "; linfdist.sklearn takes tables in any units"
        raise ValueError(f"{name}: floats must be in [0, 1], got {float(lowest):g} … {float(highest):g}{hint}")


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


def as_labels(values: Any, classes: Sequence[str] | None, name: str = "y") -> Tensor:
    """Return labels, whole numbers or names of classes, as a tensor of whole numbers; `check_labels` checks these."""
    if isinstance(values, Tensor):
        check_plain(values, name)
        return values
    array = plain_array(values, name)
    if (names := names_in(values)) is not None:
        return _numbers_of(names, classes, name)
    if array.dtype.kind not in "ui" and len(array):
        kind = "both" if array.dtype.kind == "U" else array.dtype
        raise TypeError(f"{name} must be whole numbers or names of classes, got {kind}")
    return _tensor(array, name) if len(array) else torch.empty(0, dtype=torch.int64)


def names_in(labels: Any) -> list[str] | None:
    """Return the labels if all of them are text, else None."""
    listed = labels.tolist() if isinstance(labels, np.ndarray) else labels
    named = isinstance(listed, list | tuple) and len(listed) > 0 and all(isinstance(each, str) for each in listed)
    return [str(each) for each in listed] if named else None


def _numbers_of(names: Sequence[str], classes: Sequence[str] | None, name: str) -> Tensor:
    if classes is None:
        raise ValueError(f"{name} are names, but those of the network's classes are not known: give whole numbers")
    numbers = {each: number for number, each in enumerate(classes)}
    if len(numbers) < len(classes):
        raise ValueError(f"{name} are names, but two classes have the same one: give whole numbers")
    for each in names:
        if each not in numbers:
            known = ", ".join(classes[:10]) + (", …" if len(classes) > 10 else "")
            raise ValueError(f"{name}: {each!r} is not one of the classes, {known}{closest(each, classes)}")
    return torch.tensor([numbers[each] for each in names], dtype=torch.int64)


def check_labels(classes: int, y: Tensor, count: int, name: str = "y") -> None:
    """Raise unless y are `count` labels, each from 0 to `classes` - 1."""
    if not isinstance(y, Tensor) or y.dtype.is_floating_point or y.dtype.is_complex or y.dtype == torch.bool:
        raise TypeError(
            f"{name} must be a tensor of integers, got {y.dtype if isinstance(y, Tensor) else type(y).__name__}"
        )
    check_plain(y, name)
    if tuple(y.shape) != (count,):
        raise ValueError(f"{name} must have shape ({count},), one class per image; got {tuple(y.shape)}")
    labels = y.tolist()  # minima of some kinds of integers are beyond torch
    if labels and not (min(labels) >= 0 and max(labels) < classes):
        raise ValueError(f"{name} must hold classes 0 to {classes - 1}, got {min(labels)} to {max(labels)}")
