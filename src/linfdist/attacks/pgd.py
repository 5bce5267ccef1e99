"""The paper's attack: projected gradient descent on the cross-entropy."""

import torch
from torch import Tensor
from torch.nn import functional

from ..models import PixelNet
from .base import Attack, Ball
from .surrogate import gradient


class PGD(Attack):
    """PGD-20 of Section 7.1: `steps` times eps/4 along the sign of the gradient, each time back into the ball.

    The start is N(0, (eps/4)²) clipped to ±eps/2. The gradient is that of p = inf, which is sparse: this attack is weak
    against dist nets, and is here for comparison with the paper. Every iterate counts, not only the last one, since the
    network classifies them all anyway. All images start with the same noise, so that no result depends on the batch.
    """

    name = "pgd"

    def __init__(self, steps: int = 20, seed: int = 0) -> None:
        if steps < 1:
            raise ValueError(f"steps = {steps}: must be at least 1")
        self.steps, self.seed = steps, seed

    def search(self, network: PixelNet, x: Tensor, y: Tensor, ball: Ball) -> Tensor:
        noise = torch.randn(x.shape[1:], generator=torch.Generator().manual_seed(self.seed), dtype=x.dtype)
        start = (noise.to(x.device) * (ball.eps / 4)).clamp(-ball.eps / 2, ball.eps / 2)
        images = ball.clip(x + start)
        found = images.clone()
        broken = torch.zeros_like(y, dtype=torch.bool)
        for _ in range(self.steps):
            logits, slope = gradient(network, images, lambda z: functional.cross_entropy(z, y, reduction="sum"))
            wrong = (logits.argmax(1) != y) & ~broken
            found[wrong] = images[wrong]
            broken |= wrong
            images = ball.clip(images + slope.sign() * (ball.eps / 4))
        found[~broken] = images[~broken]
        return found
