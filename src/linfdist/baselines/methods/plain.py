"""Training on single images instead of bounds: unperturbed, attacked, or with noise."""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from ...models import PixelNet
from ..networks import AdderNet, depth_and_width
from ..plan import Stage
from .base import TrainingMethod


class Natural(TrainingMethod):
    """The cross-entropy of the unperturbed images."""

    name = "natural"
    title = "Natural training"
    source = "cross-entropy alone"

    def __call__(self, network: PixelNet, x: Tensor, y: Tensor, stage: Stage) -> tuple[Tensor, Tensor]:
        z = network(x)
        return cross_entropy(z, y), z


class Adversarial(TrainingMethod):
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
        """Find images of the ball, within [0, 1], on which the loss is large."""
        lower, upper = (x - stage.eps).clamp(min=0.0), (x + stage.eps).clamp(max=1.0)
        share = torch.rand(x.shape, generator=stage.generator("attack")).to(x)
        images = lower + share * (upper - lower)
        for _ in range(self.steps):
            images.requires_grad_()
            (slope,) = torch.autograd.grad(cross_entropy(network(images), y, reduction="sum"), images)
            moved = images.detach() + 2.5 * stage.eps / self.steps * slope.sign()
            images = torch.minimum(torch.maximum(moved, lower), upper)
        return images


class Smoothing(TrainingMethod):
    """The cross-entropy of images with normal noise of standard deviation `sigma` in each pixel.

    No bound of `certify` applies to the smoothed classifier: `baselines.smoothed` makes statistical claims about it.
    """

    name = "smoothing"
    title = "Randomised smoothing"
    source = "Cohen et al., 2019"
    certified_by = ()

    def __init__(self, sigma: float = 0.5) -> None:
        if not sigma > 0:
            raise ValueError(f"sigma = {sigma!r}: must be more than 0, the deviation of the noise on the 0–1 scale")
        self.sigma = sigma

    def __call__(self, network: PixelNet, x: Tensor, y: Tensor, stage: Stage) -> tuple[Tensor, Tensor]:
        noise = torch.randn(x.shape, generator=stage.generator("noise")).to(x)
        z = network(x + self.sigma * noise)
        return cross_entropy(z, y), z


class Adder(Natural):
    """The cross-entropy of a network of ℓ1 distances: neurons much like those of ℓ∞-dist nets, without proofs."""

    name = "l1-dist"
    title = "ℓ1-dist net"
    source = "Chen et al., 2020"
    certified_by = ("box",)
    settings = tuple({"lr": lr} for lr in (0.03, 0.01, 0.1))
    kind = AdderNet
    norm = 1

    def layers(self, size: str, width: float) -> dict[str, Any]:
        """Return as many hidden layers as `sized` has of either kind, each of 512 · width neurons."""
        return {"hidden": depth_and_width(size, width), "norm": self.norm}


class Euclidean(Adder):
    """The cross-entropy of a network of ℓ2 distances."""

    name = "l2-dist"
    title = "ℓ2-dist net"
    source = "Wang et al., 2019"
    norm = 2
