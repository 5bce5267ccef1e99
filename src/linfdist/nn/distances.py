"""What layers of distances to the rows of a matrix share: the distances, and lists of the weights that matter."""

import copy
import math
from typing import TypeVar

import torch
from torch import Tensor, nn

from ..ops.box import dist_box
from ..ops.dist import dist
from ..ops.kept import FEW_ROWS, Kept, keep
from .base import Box

Layer = TypeVar("Layer", bound="Distances")


class Distances(nn.Module):
    """Distances to the rows of `weight` (O, I). `_lists` are for a layer whose weights nobody can change any more."""

    weight: nn.Parameter
    _lists: Kept | None = None

    def distances(self, x: Tensor, p: float | Tensor) -> Tensor:
        """x (..., I) -> (..., O)"""
        if self._lists and _few(x) and not isinstance(p, Tensor) and p == math.inf:
            return self._lists.dist(x)
        return dist(x, self.weight, p)

    def distances_box(self, box: Box) -> tuple[Tensor, Tensor]:
        """The smallest and the largest distances over a box, (..., O) each."""
        if self._lists and _few(box.lower):
            return self._lists.dist_box(*box)
        return dist_box(box.lower, box.upper, self.weight)

    def with_lists(self: Layer, box: Box) -> Layer:
        """The same layer, with the same tensors, for inputs of the box (1, I); see `LipschitzModule.narrowed`."""
        lists = keep(box.lower[0], box.upper[0], self.weight) if box.lower.dim() == 2 else None
        if lists is None:
            return self
        narrowed = copy.copy(self)
        narrowed._lists = lists
        return narrowed


def _few(x: Tensor) -> bool:
    return x.dim() == 2 and len(x) < FEW_ROWS and not torch.is_grad_enabled()
