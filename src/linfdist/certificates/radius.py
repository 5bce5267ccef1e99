"""The largest radius that a method proves, image by image, by a batched search."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

STEPS = 24
FINEST = 2.0**-14  # pixels: a sixtieth of a grey level
RELATIVE = 2.0**-10


def largest_proved(
    proves: Callable[[Tensor, Tensor], Tensor], proved: Tensor, failed: Tensor, limit: float = 1.0, together: int = 1
) -> Tensor:
    """Radii (B,) float64, never below `proved`; each was itself proved, so nothing has to be monotone.

    proves(rows, radius): see `Proof.proves`. proved (B,): radii known to hold. failed (B,): radii at which the proof
    failed, or infinity. Steps grow fourfold from a sixteenth of what is proved until one fails; then the interval is
    halved, down to 2^-10 of the radius or 2^-14 pixels. Radii beyond `limit`, where all images are in, are not tried.

    together: how many proofs cost hardly more than one. While so few images are left, those that the next steps could
    ask for are made at once, whatever comes out of the first ones; the radii are the same.
    """
    low, high = proved.clone(), failed.clamp(max=2 * limit)
    state, done = State(low, high, low / 16 + FINEST * 16), 0
    while done < STEPS:
        rows = state.open(limit).nonzero()[:, 0]
        if not len(rows):
            break
        ahead = min(max(1, (together // len(rows) + 1).bit_length() - 1), STEPS - done)  # steps: 2^ahead - 1 proofs
        found = _steps(proves, rows, State(*(part[rows] for part in state)), limit, ahead)
        for part, new in zip(state, found, strict=True):
            part[rows] = new
        done += ahead
    return state.low


class State(NamedTuple):
    """What is known of images: a radius that is proved, one that is not, and how far to go from the first."""

    low: Tensor
    high: Tensor
    step: Tensor

    def open(self, limit: float) -> Tensor:
        """Which of them are not finished."""
        return (self.high - self.low > RELATIVE * self.low + FINEST) & (self.low < limit)

    def probe(self, limit: float) -> Tensor:
        """The radii to try next."""
        return torch.minimum(self.low + self.step, (self.low + self.high) / 2).clamp(max=limit)


def _steps(proves: Callable[[Tensor, Tensor], Tensor], rows: Tensor, state: State, limit: float, ahead: int) -> State:
    """The states of these rows after so many steps. Column 2 k + 1 of each generation is column k of the one before it
    if its proof holds, column 2 k if not.
    """
    now, probes = State(*(part[:, None] for part in state)), []
    for _ in range(ahead):
        tried, open_ = now.probe(limit), now.open(limit)
        probes.append(tried)
        low, high = torch.where(open_, tried, now.low), torch.where(open_, tried, now.high)
        pairs = (now.low, low), (high, now.high), (now.step, 4 * now.step)
        now = State(*(torch.stack(pair, 2).flatten(1) for pair in pairs))
    tried = torch.cat(probes, 1)  # (b, 2^ahead - 1)
    holds = proves(rows.repeat_interleave(tried.shape[1]), tried.flatten()[:, None, None, None]).view(tried.shape)
    column = torch.zeros_like(rows)[:, None]
    for generation in range(ahead):
        column = 2 * column + holds.gather(1, column + 2**generation - 1)
    return State(*(part.gather(1, column)[:, 0] for part in now))
