"""The largest radius that a method proves, image by image, by a batched search."""

from collections.abc import Callable

import torch
from torch import Tensor

STEPS = 24
FINEST = 2.0**-14  # pixels: a sixtieth of a grey level
RELATIVE = 2.0**-10


def largest_proved(
    proves: Callable[[Tensor, Tensor], Tensor], proved: Tensor, failed: Tensor, limit: float = 1.0
) -> Tensor:
    """Radii (B,) float64, never below `proved`; each was itself proved, so nothing has to be monotone.

    proves(rows, radius): see `Proof.proves`. proved (B,): radii known to hold. failed (B,): radii at which the proof
    failed, or infinity. Steps grow fourfold from a sixteenth of what is proved until one fails; then the interval is
    halved, down to 2^-10 of the radius or 2^-14 pixels. Radii beyond `limit`, where all images are in, are not tried.
    """
    low, high = proved.clone(), failed.clamp(max=2 * limit)
    step = low / 16 + FINEST * 16
    for _ in range(STEPS):
        probe = torch.minimum(low + step, (low + high) / 2).clamp(max=limit)
        rows = ((high - low > RELATIVE * low + FINEST) & (low < limit)).nonzero()[:, 0]
        if not len(rows):
            break
        tried = probe[rows]
        holds = proves(rows, tried[:, None, None, None])
        low[rows] = torch.where(holds, tried, low[rows])
        high[rows] = torch.where(holds, high[rows], tried)
        step[rows] = torch.where(holds, 4 * step[rows], step[rows])
    return low
