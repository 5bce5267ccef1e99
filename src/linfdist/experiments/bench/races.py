"""Fair races between the engine and its rivals: what is timed, on which inputs, and how.

Contenders take turns on the same fresh inputs, and ratios are formed within a turn.
"""

import gc
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...ops.dist import dist, dist_conv2d

Operation = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Inputs:
    x: Tensor
    w: Tensor
    g: Tensor  # the gradient that arrives at the output


@dataclass(frozen=True)
class Contender:
    """`run` is timed, `prepare` is not; `elements`: how many terms |x_i - w_i|, or products, `run` computes."""

    prepare: Callable[[Inputs], tuple[Tensor, ...]]
    run: Callable[..., Any]
    elements: int
    threads: int


class Race:
    """Every repetition draws fresh inputs and runs each contender once, starting with another one each time."""

    def __init__(self, draw: Callable[[], Inputs], contenders: Mapping[str, Contender]) -> None:
        self.contenders = dict(contenders)
        self.seconds: dict[str, list[float]] = {name: [] for name in contenders}
        self.repetitions = 0
        self.cost = 0.0  # seconds of the last repetition, drawing included
        self._draw = draw

    def warm_up(self) -> None:
        """Run each contender once, unmeasured; contenders that differ only in threads share one run."""
        inputs = self._draw()
        most = max(contender.threads for contender in self.contenders.values())
        for contender in self.contenders.values():
            if contender.threads == most:
                _timed(contender, inputs)

    def repeat(self) -> None:
        start = time.perf_counter()
        inputs = self._draw()
        names = list(self.contenders)
        first = self.repetitions % len(names)
        for name in names[first:] + names[:first]:
            self.seconds[name].append(_timed(self.contenders[name], inputs))
        self.repetitions += 1
        self.cost = time.perf_counter() - start

    def ratios(self, over: str, under: str) -> list[float]:
        """Time per element of one contender over that of another: one ratio for each repetition."""
        scale = self.contenders[under].elements / self.contenders[over].elements
        return [a / b * scale for a, b in zip(self.seconds[over], self.seconds[under], strict=True)]


def take_turns(races: list[Race], seconds: float, most: int, report: Callable[[float], None]) -> None:
    """Repeat all races in turn, so that a busy minute of the machine affects all of them a little.

    Each race runs at least once and at most `most` times. No repetition starts that would end more than `seconds` from
    now.
    """
    start = time.perf_counter()
    deadline = start + seconds
    running = list(races)
    while running:
        for race in list(running):
            if race.repetitions and (race.repetitions >= most or time.perf_counter() + race.cost > deadline):
                running.remove(race)
                continue
            race.repeat()
            spent = (time.perf_counter() - start) / max(seconds, 1e-9)
            done = sum(race.repetitions for race in races) / (most * len(races))
            report(min(1.0, max(spent, done)))


@contextmanager
def undisturbed() -> Iterator[None]:
    """Disable garbage collection; restore torch's number of threads afterwards."""
    threads, collecting = torch.get_num_threads(), gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        if collecting:
            gc.enable()


def _timed(contender: Contender, inputs: Inputs) -> float:
    arguments = contender.prepare(inputs)
    if torch.get_num_threads() != contender.threads:
        torch.set_num_threads(contender.threads)
        torch.zeros(1 << 18).add_(1)  # wakes the threads
    start = time.perf_counter()
    contender.run(*arguments)
    return time.perf_counter() - start


# --- problems -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Linear:
    """x (B, I), w (O, I) -> (B, O)."""

    batch: int
    inputs: int
    outputs: int

    @property
    def elements(self) -> int:
        return self.batch * self.inputs * self.outputs

    def draw(self, draw_x: Callable[..., Tensor]) -> Inputs:
        return Inputs(
            draw_x(self.batch, self.inputs),
            torch.randn(self.outputs, self.inputs),
            torch.randn(self.batch, self.outputs),
        )

    def part_of(self, inputs: Inputs) -> Inputs:
        """Cut this problem's inputs out of those of a larger problem."""
        return Inputs(
            inputs.x[: self.batch, : self.inputs].contiguous(),
            inputs.w[: self.outputs, : self.inputs].contiguous(),
            inputs.g[: self.batch, : self.outputs].contiguous(),
        )

    def __str__(self) -> str:
        return f"B {self.batch}, I {self.inputs}, O {self.outputs}"


@dataclass(frozen=True)
class Convolution:
    """A kernel x kernel convolution of size x size images, padded to keep their size."""

    batch: int
    channels: int
    size: int
    kernel: int = 3

    @property
    def elements(self) -> int:
        return self.batch * self.size**2 * self.channels * self.channels * self.kernel**2

    @property
    def padding(self) -> int:
        return self.kernel // 2

    def draw(self, draw_x: Callable[..., Tensor]) -> Inputs:
        images = (self.batch, self.channels, self.size, self.size)
        return Inputs(
            draw_x(*images), torch.randn(self.channels, self.channels, self.kernel, self.kernel), torch.randn(*images)
        )

    def __str__(self) -> str:
        return (
            f"{self.kernel}×{self.kernel}, {self.channels}→{self.channels} channels, "
            f"{self.size}×{self.size}, batch {self.batch}"
        )


# --- operations: (x, w) -> y ----------------------------------------------------------------------


def engine(p: float) -> Operation:
    return lambda x, w: dist(x, w, p)


def engine_convolution(p: float, padding: int) -> Operation:
    return lambda x, w: dist_conv2d(x, w, p, padding=padding)


def product(x: Tensor, w: Tensor) -> Tensor:
    return x @ w.T


def cdist(p: float) -> Operation:
    return lambda x, w: torch.cdist(x, w, p=p)


def broadcast(p: float) -> Operation:
    """Compute the formula in the obvious way, by broadcasting."""

    def formula(x: Tensor, w: Tensor) -> Tensor:
        terms = (x[:, None] - w).abs()  # (B, O, I)
        return terms.amax(2) if p == math.inf else terms.pow(p).sum(2).pow(1 / p)

    return formula


def compiled(p: float) -> Operation:
    """`torch.compile` of the broadcast formula; the compiler decides how much of the cube is ever built."""
    return torch.compile(broadcast(p), dynamic=False)


# --- contenders: an operation, forward only or with both gradients --------------------------------


def forward(operation: Operation, problem: Linear | Convolution, threads: int) -> Contender:
    def prepare(inputs: Inputs) -> tuple[Tensor, ...]:
        own = _own(problem, inputs)
        return own.x, own.w

    @torch.no_grad()
    def run(x: Tensor, w: Tensor) -> None:
        operation(x, w)

    return Contender(prepare, run, problem.elements, threads)


def training_step(operation: Operation, problem: Linear | Convolution, threads: int) -> Contender:
    def prepare(inputs: Inputs) -> tuple[Tensor, ...]:
        own = _own(problem, inputs)
        return own.x.detach().requires_grad_(), own.w.detach().requires_grad_(), own.g

    def run(x: Tensor, w: Tensor, g: Tensor) -> None:
        operation(x, w).backward(g)

    return Contender(prepare, run, problem.elements, threads)


def _own(problem: Linear | Convolution, inputs: Inputs) -> Inputs:
    return problem.part_of(inputs) if isinstance(problem, Linear) else inputs
