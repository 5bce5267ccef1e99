"""Adversarial training (Madry et al., 2018): strong against attacks, and hardly certified."""

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from ...models import PixelNet
from ..plan import Stage
from .base import Method


class Adversarial(Method):
    """The cross-entropy of images that `steps` steps of PGD have found in the ball, from a random start."""

    name = "adversarial"
    title = "Adversarial training"
    source = "Madry et al., 2018"

    def __init__(self, steps: int = 7) -> None:
        if steps < 1:
            raise ValueError(f"steps = {steps}: must be at least 1")
        self.steps = steps

    def __call__(self, network: PixelNet, x: Tensor, y: Tensor, stage: Stage) -> tuple[Tensor, Tensor]:
        z = network(self.attacked(network, x, y, stage) if stage.eps > 0 else x)
        return cross_entropy(z, y), z

    def attacked(self, network: PixelNet, x: Tensor, y: Tensor, stage: Stage) -> Tensor:
        """Images of the ball, within [0, 1], on which the loss is large."""
        lower, upper = (x - stage.eps).clamp(min=0.0), (x + stage.eps).clamp(max=1.0)
        share = torch.rand(x.shape, generator=stage.generator("attack")).to(x)
        images = lower + share * (upper - lower)
        for _ in range(self.steps):
            images.requires_grad_()
            (slope,) = torch.autograd.grad(cross_entropy(network(images), y, reduction="sum"), images)
            moved = images.detach() + 2.5 * stage.eps / self.steps * slope.sign()
            images = torch.minimum(torch.maximum(moved, lower), upper)
        return images
