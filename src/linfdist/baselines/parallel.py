"""Boxes of neurons by parallel lines around each ReLU, exactly or by random projections: for training alone."""

import torch
from torch import Tensor

from ..bounds.interval import bare_box, nonlinear, relaxation
from ..nn import Box, Stack
from .cauchy import cauchy


def by_parallel_lines(body: Stack, pixels: Box, draws: int = 0, generator: torch.Generator | None = None) -> list[Box]:
    """Boxes of the inputs of all layers, and of the features; those of ReLUs by the dual bound of Wong & Kolter (2018).

    Between parallel lines, a ReLU is y = s x + t/2 ± t/2, with the slope s and the height t of its band: all that is
    computed is linear in as many unknowns of [−1, 1] as there are pixels and ReLUs so far. A box reaches from its
    middle as far as the ℓ1 norm of the coefficients. They are kept one by one if draws = 0; that is for small networks.
    Else, so many sums of them with random weights, drawn from a Cauchy distribution, are kept in their place: the
    median of their absolute values estimates the norm (Wong et al., 2018), whatever the number of unknowns is, but it
    is an estimate and may be too small. The draws are shared by all images.

    The box of the first ReLU is that of intervals, which is exact; boxes of other layers follow by intervals too.
    """
    found, seen = [pixels], False
    middle, reach = (pixels.lower + pixels.upper) / 2, (pixels.upper - pixels.lower) / 2
    unknowns = _unknowns(reach, draws, generator)
    for layer in body:
        if nonlinear(layer):
            if seen:
                size = unknowns.abs()
                norm = size.movedim(1, -1).median(-1).values if draws else size.sum(1)
                found[-1] = Box(middle - norm, middle + norm)
            slope, height = relaxation(layer, found[-1])
            middle, seen = slope * middle + height / 2, True
            unknowns, fresh = slope[:, None] * unknowns, _unknowns(height / 2, draws, generator)
            unknowns = unknowns + fresh if draws else torch.cat([unknowns, fresh], 1)
        else:
            still = layer(torch.zeros_like(middle[:1]))  # the layer is affine: the rest is its linear part
            middle = layer(middle)
            unknowns = (layer(unknowns.flatten(0, 1)) - still).unflatten(0, unknowns.shape[:2])
        found.append(bare_box(layer, found[-1]))
    return found


def _unknowns(reach: Tensor, draws: int, generator: torch.Generator | None) -> Tensor:
    """Coefficients (B, unknowns, *shape) of one unknown for each of reach (B, *shape), or `draws` sums of these."""
    if not draws:
        return torch.diag_embed(reach.flatten(1)).unflatten(2, reach.shape[1:])
    return cauchy((draws, *reach.shape[1:]), generator, reach) * reach[:, None]
