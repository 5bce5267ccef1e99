"""What all attacks share: they search, and what they find is clipped and tested here. None marks its own paper."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction

import torch
from torch import Tensor

from ..models import PixelNet
from .ball import Ball, size


@dataclass(frozen=True)
class Attacked:
    """What an attack has made of a batch of images.

    images: (B, C, H, W), within the ball and [0, 1]: the image that fools the network where there is one, else the
    strongest attempt; broken: (B,) bool: the network at p = inf does not give the label to it; size: (B,) float64, the
    largest change of a pixel, exact (rounded up where float64 cannot hold it).
    """

    images: Tensor
    broken: Tensor
    size: Tensor


class Attack(ABC):
    """Searches the closed eps-ball within [0, 1] for images that the network gets wrong.

    An attack implements `search`. Everything it claims is checked here: the images are clipped to the ball in exact
    arithmetic and the network, in eval mode and at p = inf, is asked again. Images it gets wrong unperturbed are broken
    as they are, with size 0, and are not searched. Same seed, same result for the same batch.
    """

    name: str

    def __call__(self, network: PixelNet, x: Tensor, y: Tensor, eps: Fraction | Sequence[Fraction]) -> Attacked:
        """Attack images x (B, C, H, W) in [0, 1] with labels y (B,); eps in pixels, one or one for each image.

        The network is left as it was: no gradients, no change of mode. ValueError for a network in training mode.
        """
        check(network, x, y, eps)
        with torch.inference_mode(False), torch.no_grad(), frozen(network):
            x, y = x.clone(), y.clone()  # what was made in inference mode has no gradients
            ball, images = Ball.around(x, eps), x.clone()
            logits = network(x)
            check_classes(logits, y)
            right = ((logits.argmax(1) == y) & (ball.eps > 0).flatten()).nonzero()[:, 0]
            if len(right):
                images[right] = self.search(network, x[right], y[right], ball[right])
            images = ball.clip(torch.where(images.isnan(), x, images))
            return Attacked(images, predict(network, images) != y, size(images, x))

    @abstractmethod
    def search(self, network: PixelNet, x: Tensor, y: Tensor, ball: Ball) -> Tensor:
        """Images (B, C, H, W), each meant to be wrong; x are classified right, B >= 1. Called without gradients."""


def predict(network: PixelNet, x: Tensor) -> Tensor:
    """The classes (B,) at p = inf; the first of those that tie."""
    return network(x).argmax(1)


def check(network: PixelNet, x: Tensor, y: Tensor, eps: Fraction | Sequence[Fraction]) -> None:
    """Raise for what cannot be attacked, with the reason."""
    if any(module.training for module in network.modules()):
        raise ValueError("a network in training mode cannot be attacked: call .eval() first")
    network.check_images(x)
    if not ((x >= 0) & (x <= 1)).all():  # NaN fails too
        raise ValueError("pixels must lie in [0, 1]")
    if y.dtype != torch.int64 or y.shape != x.shape[:1]:
        raise ValueError(f"need one int64 label per image, {tuple(x.shape[:1])}, got {y.dtype} {tuple(y.shape)}")
    radii = [eps] if isinstance(eps, Fraction) else eps
    if isinstance(radii, str | bytes) or not isinstance(radii, Sequence):
        raise TypeError(f"eps = {eps!r}: must be a Fraction (linfdist.eps.parse_eps makes one), or one for each image")
    for radius in radii:
        if not isinstance(radius, Fraction):
            raise TypeError(f"eps = {radius!r}: must be a Fraction: linfdist.eps.parse_eps makes one")
        if not 0 <= radius <= 1:
            raise ValueError(f"eps = {radius}: must be between 0 and 1, on the 0–1 intensity scale")
    if not isinstance(eps, Fraction) and len(radii) != len(x):
        raise ValueError(f"eps holds {len(radii)} radii for {len(x)} images: give one Fraction, or one for each image")


def check_classes(logits: Tensor, y: Tensor) -> None:
    """Raise for labels that the network cannot give, which would pass for broken, and where there is no choice."""
    classes = logits.shape[1]
    if classes < 2:
        raise ValueError("a network with one class cannot be fooled")
    if len(y) and not 0 <= int(y.min()) <= int(y.max()) < classes:
        raise ValueError(f"labels must lie between 0 and {classes - 1}, got {int(y.min())} to {int(y.max())}")


@contextmanager
def frozen(network: PixelNet) -> Iterator[None]:
    """No gradients for the weights meanwhile: those of the pixels alone are cheaper, and none is left behind."""
    learned = [parameter for parameter in network.parameters() if parameter.requires_grad]
    try:
        for parameter in learned:
            parameter.requires_grad_(False)
        yield
    finally:
        for parameter in learned:
            parameter.requires_grad_(True)
