"""The default attack, made for dist nets: the margin, descended with the gradients of several finite p."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ..models import PixelNet
from .base import Attack, Ball
from .pgd import PGD
from .surrogate import gradient


class Stage(NamedTuple):
    """One descent, on all images that are not broken yet.

    p: of the gradient; steps; rank: which wrong class to lift, by its logit (0 is the runner-up), or None for the best
    at every step; corner: start at a random corner of the ball.
    """

    p: float
    steps: int
    rank: int | None = None
    corner: bool = False


STAGES = (
    Stage(200, 10),
    Stage(1000, 10),
    Stage(50, 20),
    Stage(1000, 20, rank=0),
    Stage(200, 20, rank=1),
    Stage(200, 20, rank=2),
    Stage(200, 40, corner=True),
)
MOMENTUM = 0.25
PERIOD, USEFUL = 4, 0.6  # every so many steps: the step is halved if fewer than this part of them helped


class Strong(Attack):
    """PGD first (so it breaks whatever PGD breaks), then descent on the margin z_y - max z_j with surrogate gradients.

    After each stage it continues with the images that are not broken, and whose margin is below `reach` times what it
    was or still fell by 2 % of that in the stage. reach = 1 never gives up, and takes several times as long.
    """

    name = "strong"

    def __init__(self, seed: int = 0, reach: float = 0.25, stages: tuple[Stage, ...] = STAGES) -> None:
        if not 0 <= reach <= 1:
            raise ValueError(f"reach = {reach}: must be between 0 and 1, the part of the margin above which to give up")
        self.seed, self.reach, self.stages = seed, reach, stages

    def search(self, network: PixelNet, x: Tensor, y: Tensor, ball: Ball) -> Tensor:
        clean = margins(network(x), y)
        images = PGD(seed=self.seed).search(network, x, y, ball)
        logits = network(images)
        best = margins(logits, y)
        left = (logits.argmax(1) == y).nonzero()[:, 0]
        for stage in self.stages:
            if not len(left):
                break
            start = self._start(stage, x[left], ball[left])
            found, wrong, reached = descend(network, start, y[left], ball[left], stage)
            fell = best[left] - reached
            better = (fell > 0) | wrong
            images[left[better]] = found[better]
            best[left] = torch.minimum(best[left], reached)
            promising = (best[left] <= self.reach * clean[left]) | (fell >= 0.02 * clean[left])
            left = left[~wrong & promising]
        return images

    def _start(self, stage: Stage, x: Tensor, ball: Ball) -> Tensor:
        if not stage.corner:
            return x
        generator = torch.Generator().manual_seed(self.seed)
        signs = 2.0 * torch.randint(2, x.shape[1:], generator=generator) - 1  # the same for all images
        return torch.where(signs.to(x.device) > 0, ball.upper, ball.lower)


def margins(logits: Tensor, y: Tensor, target: Tensor | None = None) -> Tensor:
    """Return (B,): z_y minus the best other logit, or minus that of the classes `target` (B,)."""
    own = logits.gather(1, y[:, None])[:, 0]
    if target is not None:
        return own - logits.gather(1, target[:, None])[:, 0]
    return own - _others(logits, y).amax(1)


def _others(logits: Tensor, y: Tensor) -> Tensor:
    return logits.scatter(1, y[:, None], -math.inf)


def descend(network: PixelNet, start: Tensor, y: Tensor, ball: Ball, stage: Stage) -> tuple[Tensor, Tensor, Tensor]:
    """Descend from `start` by sign steps with momentum, and return the images of the smallest margins.

    The first step is as long as the ball is wide. Whenever few of the last steps reduced an image's margin, its step
    length is halved and it returns to its best point (much as in APGD).

    -> the images (B, C, H, W) of the smallest margins, where those are wrong (B,), and these margins (B,).
    """
    target = None if stage.rank is None else _ranked(network(start), y, stage.rank)
    images, before, best, slope_there = start, start, start, torch.zeros_like(start)
    reached = torch.full_like(y, math.inf, dtype=start.dtype)
    wrong, useful, step = torch.zeros_like(y, dtype=torch.bool), torch.zeros_like(y), 2 * ball.eps
    for k in range(1, stage.steps + 1):
        logits, slope = gradient(network, images, lambda z: margins(z, y, target).sum(), stage.p)
        margin, fooled = margins(logits, y), logits.argmax(1) != y
        better = (margin < reached) | (fooled & ~wrong)
        best, slope_there = _choose(better, images, best), _choose(better, slope, slope_there)
        reached, wrong, useful = torch.where(better, margin, reached), wrong | fooled, useful + better
        if k % PERIOD == 0:
            stuck = useful < USEFUL * PERIOD
            step, useful = _choose(stuck, step / 2, step), torch.zeros_like(useful)
            images, before = _choose(stuck, best, images), _choose(stuck, best, before)
            slope = _choose(stuck, slope_there, slope)
        sideways = ball.clip(images - step * slope.sign())
        moved = ball.clip(images + (1 - MOMENTUM) * (sideways - images) + MOMENTUM * (images - before))
        images, before = moved, images
    return best, wrong, reached


def _choose(which: Tensor, one: Tensor, other: Tensor) -> Tensor:
    """Return `one` for the images where `which` (B,), else `other`."""
    return torch.where(which[:, None, None, None], one, other)


def _ranked(logits: Tensor, y: Tensor, rank: int) -> Tensor:
    """Return the wrong class (B,) with `rank` wrong classes before it; the last one if there are fewer."""
    others = _others(logits, y)
    return others.topk(min(rank + 1, others.shape[1] - 1), dim=1).indices[:, -1]
