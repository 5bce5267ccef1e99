"""The schedule of a training: its settings are a pure function of the step."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Literal

import torch

from ..eps import Eps, parse_eps


@dataclass(frozen=True)
class Stage:
    """The settings of one step.

    share: the completed share of the ramp, from 0 to 1; target: eps after the ramp; done: the completed share of the
    training after the warm-up.
    """

    epoch: float
    eps: float
    kappa: float
    beta: float
    lr: float
    seed: int = 0
    step: int = 0
    share: float = 1.0
    target: float = 0.0
    done: float = 0.0

    def generator(self, stream: str) -> torch.Generator:
        """Return the random generator of a stream in this step: the seed, the step and the stream determine it."""
        digest = hashlib.sha256(f"{self.seed}/{stream}/{self.step}".encode()).digest()
        return torch.Generator().manual_seed(int.from_bytes(digest[:4], "little"))


@dataclass(frozen=True)
class Plan:
    """A training of `epochs` epochs: natural for `warm_up` of them, then the radius grows to `eps` over `ramp` epochs.

    eps: radius trained for, on the 0–1 intensity scale; often more than the one to certify. kappa: weight of the
    natural loss, before and after the ramp. beta: weight of the linear bounds against intervals, before and after the
    ramp (CROWN-IBP). lr: learning rate of Adam, constant until the end of the ramp, then falling to 0 like a cosine.
    clip: largest norm of the gradient. Methods read the values that they need.
    """

    eps: Eps
    epochs: float = 20.0
    warm_up: float = 1.0
    ramp: float = 10.0
    kappa: tuple[float, float] = (1.0, 0.5)
    beta: tuple[float, float] = (1.0, 0.0)
    lr: float = 5e-4
    batch_size: int = 256
    clip: float = 8.0
    pad: int = 0
    pad_mode: Literal["zero", "edge"] = "zero"
    flip: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        parse_eps(self.eps)
        for name in ("epochs", "lr", "clip", "batch_size", "warm_up", "ramp", "pad", "seed"):
            if not _is_number(value := getattr(self, name)):
                quoted = ", without quotes" if isinstance(value, str) else ""
                raise TypeError(f"{name} = {value!r:.60}: must be a number{quoted}, got a {type(value).__name__}")
        for name in ("kappa", "beta"):
            ends = getattr(self, name)
            if not isinstance(ends, Sequence) or len(ends) != 2 or not all(map(_is_number, ends)):
                raise TypeError(f"{name} = {ends!r:.60}: must be two numbers between 0 and 1, such as (1.0, 0.5)")
        for name in ("epochs", "lr", "clip", "batch_size"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} = {getattr(self, name)!r}: must be more than 0")
        for name in ("warm_up", "ramp", "pad", "seed"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} = {getattr(self, name)!r}: must not be negative")
        for name in ("kappa", "beta"):
            if not all(0 <= end <= 1 for end in getattr(self, name)):
                raise ValueError(f"{name} = {getattr(self, name)!r}: must be two numbers between 0 and 1")
        if self.warm_up + self.ramp > self.epochs:
            raise ValueError(
                f"warm_up + ramp = {self.warm_up + self.ramp:g} epochs: must be at most epochs = {self.epochs:g}"
            )

    def at(self, step: int, steps_per_epoch: int) -> Stage:
        """Return the settings of step number `step` = 0, 1, 2, …"""
        epoch, eps = step / steps_per_epoch, float(parse_eps(self.eps))
        share = _clip((epoch - self.warm_up) / self.ramp) if self.ramp else float(epoch >= self.warm_up)
        after = self.warm_up + self.ramp
        rest = _clip((epoch - after) / (self.epochs - after)) if self.epochs > after else 0.0
        lr = self.lr * 0.5 * (1 + math.cos(math.pi * rest))
        (k0, k1), (b0, b1) = self.kappa, self.beta
        kappa, beta = k0 + (k1 - k0) * share, b0 + (b1 - b0) * share
        done = _clip((epoch - self.warm_up) / (self.epochs - self.warm_up)) if self.epochs > self.warm_up else 0.0
        return Stage(epoch, eps * share, kappa, beta, lr, self.seed, step, share, eps, done)


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _clip(fraction: float) -> float:
    return min(max(fraction, 0.0), 1.0)
