"""What is timed: the engine and its rivals, forward and as a training step, on drawn data."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ..ops.dist import dist, dist_conv2d
from .timing import Contender, Inputs

Operation = Callable[[Tensor, Tensor], Tensor]


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
        """This problem's share of a larger one's inputs."""
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
    """The formula as one would write it."""

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
