"""Lists of weights that outlive a call: for weights that nobody can change, and inputs of a known box, at p = inf.

In a trained network, a tenth of the weights can be the farthest for some image of [0, 1]; lists of these make a few
rows ten times as fast. Every result has the bits of `dist` and `dist_box`: each call checks whether its rows lie in the
box, and computes without the lists if not. The caller guarantees that the weights do not change, so this is not public.
"""

from typing import NamedTuple

from torch import Tensor

from .backends import native, native_for

FEW_ROWS = 32  # from here on, the lists that a call makes for its own rows are shorter by more than they cost


class CachedLists(NamedTuple):
    """The weights (O, I), the box (I), and which sides of which weights can be the distance within it."""

    w: Tensor
    lower: Tensor
    upper: Tensor
    start: Tensor  # (O + 1): the entries of neuron o are those from start[o] on,
    middle: Tensor  # (O): before middle[o] the sides x - w, then w - x
    inputs: Tensor  # the input of each entry
    weight: Tensor

    def dist(self, x: Tensor) -> Tensor:
        """`dist(x, w)` for x (B, I), without gradients."""
        result: Tensor = native.inf_dist_cached(x.contiguous(), *self)
        return result

    def dist_box(self, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
        """`dist_box(lower, upper, w)` for bounds (B, I), without gradients and without checking their order."""
        near, far = native.box_dist_cached(lower.contiguous(), upper.contiguous(), *self)
        return near, far


def make_lists(lower: Tensor, upper: Tensor, w: Tensor) -> CachedLists | None:
    """Make lists for all inputs between lower and upper (I); None if no kernel supports them, or bounds overflow."""
    own = w.detach().contiguous()
    if not native_for(own, "cached_lists") or not (lower.isfinite() & upper.isfinite()).all():
        return None
    low, high = lower.contiguous(), upper.contiguous()
    return CachedLists(own, low, high, *native.cached_lists(low, high, own))
