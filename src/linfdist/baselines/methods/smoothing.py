"""Randomised smoothing (Cohen et al., ICML 2019): training with the noise that classes are averaged over."""

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from ...models import PixelNet
from ..plan import Stage
from .base import Method


class Smoothing(Method):
    """The cross-entropy of images with normal noise of deviation `sigma` in each pixel.

    No bound of `certify` is meant for the smoothed classifier: `baselines.smoothed` makes statistical claims of it.
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
