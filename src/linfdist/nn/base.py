"""The contract of all layers below the head: a Lipschitz constant, a map of points, a map of boxes."""

import math
from abc import ABC, abstractmethod
from typing import NamedTuple

from torch import Tensor, nn

from ..numbers import round_up as round_up


class Box(NamedTuple):
    """All x with lower <= x <= upper, coordinate by coordinate."""

    lower: Tensor
    upper: Tensor


class LipschitzModule(nn.Module, ABC):
    """A layer that certificates can build on.

    p is an argument, so nothing has to be set on a module and a layer called without it is the certified one (p = inf).
    Layers without distances take p too, and ignore it.
    """

    @property
    @abstractmethod
    def lipschitz(self) -> float:
        """L with ‖f(x) − f(x′)‖∞ <= L ‖x − x′‖∞ at p = inf, in exact arithmetic; never rounded down."""

    @abstractmethod
    def forward(self, x: Tensor, p: float | Tensor = math.inf) -> Tensor:
        """f(x); at p = inf it is `lipschitz`-Lipschitz."""

    @abstractmethod
    def forward_box(self, box: Box) -> Box:
        """Bounds of `forward(x)` at p = inf, as computed with its rounding, over all x of the box; no slack is needed.

        Every layer is made of float operations that keep (or all reverse) the order of their results: a correctly
        rounded operation is monotone wherever the exact one is. So the same operations on the ends of the box enclose
        their results inside. This holds on one device and backend, and for one dtype.
        """
