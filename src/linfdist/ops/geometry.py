"""Where a window of the input meets a kernel: stride, padding, dilation, groups.

A linear layer is the 1x1 convolution of a 1x1 image (`POINT`), so every op below takes four-dimensional tensors.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from torch import Tensor

Ints = Sequence[int]
IntOrPair = int | Ints


class Geometry(NamedTuple):
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    groups: int


POINT = Geometry((1, 1), (0, 0), (1, 1), 1)


def make_geometry(stride: IntOrPair, padding: IntOrPair, dilation: IntOrPair, groups: int) -> Geometry:
    """Check and return the geometry of a two-dimensional convolution."""
    if not _is_int(groups) or groups < 1:
        raise ValueError(f"groups must be an int of at least 1, got {groups!r}")
    return Geometry(
        _pair("stride", stride, least=1),
        _pair("padding", padding, least=0),
        _pair("dilation", dilation, least=1),
        groups,
    )


def output_size(x_shape: Sequence[int], w_shape: Sequence[int], geometry: Geometry) -> tuple[int, int]:
    """Height and width of the output image, the formula of `torch.nn.Conv2d`."""
    height, width = (
        (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
        for size, kernel, stride, padding, dilation in zip(
            x_shape[2:], w_shape[2:], geometry.stride, geometry.padding, geometry.dilation, strict=True
        )
    )
    return height, width


S = TypeVar("S", bound="Sizes")


@dataclass(frozen=True)
class Sizes:
    """The sizes of one call, in which neuron o of group g sees, in row r = (n, oh, ow), a window of I inputs."""

    x_shape: tuple[int, ...]
    w_shape: tuple[int, ...]
    geometry: Geometry
    out_height: int
    out_width: int

    @classmethod
    def of(cls: type[S], x_shape: Sequence[int], w_shape: Sequence[int], geometry: Geometry) -> S:
        stride, padding, dilation, groups = geometry  # lists, if torch hands them on
        geometry = make_geometry(stride, padding, dilation, groups)
        return cls(tuple(x_shape), tuple(w_shape), geometry, *output_size(x_shape, w_shape, geometry))

    @property
    def groups(self) -> int:
        return self.geometry.groups

    @property
    def rows(self) -> int:
        return self.x_shape[0] * self.out_height * self.out_width

    @property
    def neurons(self) -> int:
        """Neurons of one group."""
        return self.w_shape[0] // self.groups

    @property
    def inputs(self) -> int:
        return math.prod(self.w_shape[1:])

    @property
    def empty(self) -> bool:
        """Whether the call has no pair of an input and a weight."""
        return not (self.inputs and self.rows and self.neurons)


def check_fit(x: Tensor, w: Tensor, geometry: Geometry) -> None:
    """Raise ValueError unless images x (N, C, H, W) and kernels w (O, C/groups, KH, KW) fit together."""
    if w.dim() != 4:
        raise ValueError(f"w must have shape (O, C/groups, KH, KW), got {tuple(w.shape)}")
    groups = geometry.groups
    if x.shape[1] != w.shape[1] * groups:
        raise ValueError(
            f"x has {x.shape[1]} channels, but w {tuple(w.shape)} with groups={groups} takes {w.shape[1] * groups}"
        )
    if w.shape[0] % groups:
        raise ValueError(f"the {w.shape[0]} output channels of w do not divide into groups={groups}")
    if w.shape[2] < 1 or w.shape[3] < 1:
        raise ValueError(f"the kernel must be at least 1x1, got w of shape {tuple(w.shape)}")
    height, width = output_size(x.shape, w.shape, geometry)
    if height < 1 or width < 1:
        raise ValueError(
            f"the kernel {tuple(w.shape[2:])} with dilation {geometry.dilation} is larger than "
            f"the image {tuple(x.shape[2:])} with padding {geometry.padding}"
        )


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _pair(name: str, value: IntOrPair, least: int) -> tuple[int, int]:
    pair = (value, value) if isinstance(value, int) else tuple(value) if isinstance(value, Sequence) else ()
    if len(pair) != 2 or not all(_is_int(v) and v >= least for v in pair):
        raise ValueError(f"{name} must be an int or a pair of ints of at least {least}, got {value!r}")
    return pair[0], pair[1]
