"""Points of a box: its corners at random, its inside at random, its two ends."""

from collections.abc import Iterator

import torch
from torch import Tensor

from linfdist.nn import Box


def random_box(*shape: int, dtype: torch.dtype = torch.float32, radius: float = 0.1) -> Box:
    lower = torch.rand(*shape, dtype=dtype)
    return Box(lower, lower + radius * torch.rand(*shape, dtype=dtype))


def points_of(box: Box, count: int = 20) -> Iterator[Tensor]:
    yield from box
    for _ in range(count):
        yield torch.where(torch.rand_like(box.lower) < 0.5, *box)
        inside = torch.lerp(box.lower, box.upper, torch.rand_like(box.lower))
        yield inside.clamp(*box)


def assert_encloses(box: Box, value: Tensor) -> None:
    """Not a bit outside."""
    assert box.lower.shape == value.shape == box.upper.shape
    assert (box.lower <= value).all()
    assert (value <= box.upper).all()
