"""The backends: each computes the same functions on checked, contiguous tensors, and says why it cannot.

All functions take images x (N, C, H, W) and kernels w (O, C/groups, KH, KW) of one dtype and device, and their
geometry; outputs are (N, O, OH, OW). The I = C/groups * KH * KW inputs of a neuron are counted row-major, and padding
is the value 0.
"""

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

from ..geometry import Geometry

Ints = Sequence[int]


class Backend(Protocol):
    @property
    def name(self) -> str: ...

    def unsupported(self, x: Tensor, w: Tensor) -> list[str]:
        """The reasons why these tensors cannot be computed here; empty if they can."""

    def inf_dist(self, x: Tensor, w: Tensor, geometry: Geometry, /) -> Tensor:
        """max_i |x_i - w_i|."""

    def inf_dist_argmax(self, x: Tensor, w: Tensor, geometry: Geometry, /) -> tuple[Tensor, Tensor]:
        """The same and `where` (int32): the first arg-max i, or ~i where x_i < w_i; the first NaN counts as the max."""

    def inf_dist_backward(
        self, grad: Tensor, y: Tensor, where: Tensor, x_shape: Ints, w_shape: Ints, geometry: Geometry,
        need_x: bool, need_w: bool, /
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """(dx, dw); an unneeded one is empty."""

    def p_dist(self, x: Tensor, w: Tensor, p: float, geometry: Geometry, /) -> Tensor:
        """(sum_i |x_i - w_i|^p)^(1/p) for finite p."""

    def p_dist_backward(
        self, grad: Tensor, x: Tensor, w: Tensor, y: Tensor, p: float, geometry: Geometry, need_x: bool, need_w: bool, /
    ) -> tuple[Tensor, Tensor]:
        """(dx, dw); an unneeded one is empty."""

    def box_dist(self, lower: Tensor, upper: Tensor, w: Tensor, geometry: Geometry, /) -> tuple[Tensor, Tensor]:
        """The smallest and the largest max_i |x_i - w_i| over lower <= x <= upper."""

    def box_dist_argmax(
        self, lower: Tensor, upper: Tensor, w: Tensor, geometry: Geometry, /
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The same, and for each bound the first i that attains it: i by `lower - w` (`upper - w` for the larger
        bound), ~i by `w - upper` (`w - lower`)."""


class Kernels(Protocol):
    """What a backend may have kernels for, and `linfdist.ops` has a form in plain torch of: see `adam` and `exact`."""

    @property
    def name(self) -> str: ...

    def unsupported(self, x: Tensor, w: Tensor) -> list[str]: ...

    def exact_unsupported(self, x: Tensor) -> list[str]:
        """The reasons why integer layers of this input cannot be computed here; empty if they can."""

    def adam_(
        self, w: Tensor, grad: Tensor, mean: Tensor, square: Tensor, lr: float, beta1: float, beta2: float, eps: float,
        decay: float, p: float, step: int, rows: int, /
    ) -> None:  # fmt: skip
        """One step on contiguous float32 tensors, in place; the decay's norms are those of so many rows."""

    def exact_dense(self, x: Tensor, w: Tensor, b: Tensor, /) -> Tensor:
        """What `exact.dense` computes."""

    def exact_sided(self, *arguments: Tensor) -> Tensor:
        """What `exact.sided` computes, of its arguments."""

    def exact_network(
        self, images: Tensor, k: int, sizes: Ints, runs: Ints, neuron: Tensor, start: Tensor, middle: Tensor,
        inputs: Tensor, weight: Tensor, b: Tensor, /
    ) -> Tensor:  # fmt: skip
        """What `exact.network` computes: the parts of its `Chain` come one by one."""
