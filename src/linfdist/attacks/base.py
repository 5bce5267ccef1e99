"""The base of all attacks: it clips what they find to the ball, exactly, and tests it on the network."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, cast

import torch
from torch import Tensor

from ..data.samples import check_labels, check_plain
from ..eps import Eps, is_number, parse_eps, round_down
from ..errors import described
from ..models import Network, PixelNet
from ..models.base import as_asked


@dataclass(frozen=True)
class Ball:
    """The floats x' in [0, 1] with |x' - x| <= eps, as rational numbers: all those between the bounds.

    lower, upper: (B, C, H, W), in x's precision; eps: (B, 1, 1, 1), rounded, as a length of steps only.
    """

    lower: Tensor
    upper: Tensor
    eps: Tensor

    @staticmethod
    def around(x: Tensor, eps: Sequence[Fraction]) -> "Ball":
        """x (B, C, H, W) in [0, 1], float32 or float64; eps: one radius, or one for each image. x is always inside."""
        radius = _Radius.of(eps, x)
        rounded = radius.near.to(x.dtype).expand(len(x), 1, 1, 1)
        return Ball(_bound(x, radius, 0.0), _bound(x, radius, 1.0), rounded)

    def __getitem__(self, index: Tensor) -> "Ball":
        """Select the balls of some images."""
        return Ball(self.lower[index], self.upper[index], self.eps[index])

    def clip(self, images: Tensor) -> Tensor:
        """Move images to the nearest points inside. NaN stays NaN."""
        return torch.maximum(torch.minimum(images, self.upper), self.lower)


def size(images: Tensor, x: Tensor) -> Tensor:
    """Return max |images - x| of each image, (B,) float64, on the 0–1 scale.

    It is exact, or rounded up where float64 cannot hold it. Levels of 8-bit images are divided by 255 and rounded down,
    like the radii of exact networks, so that the two compare as whole levels do.
    """
    if images.dtype == torch.uint8:
        levels = (images.int() - x.int()).abs().flatten(1).amax(1).tolist()
        return torch.tensor([round_down(Fraction(each, 255)) for each in levels], dtype=torch.float64)
    near, rest = _difference(images.double(), x.double())
    rest = torch.where(near < 0, -rest, rest)
    near = near.abs()
    above = torch.where(rest > 0, torch.nextafter(near, torch.full_like(near, math.inf)), near)
    return above.flatten(1).amax(1) if above[0:1].numel() else above.new_zeros(len(above))


@dataclass(frozen=True)
class _Radius:
    """eps = near + rest: near rounded to the nearest float64, rest to the next one below. (B or 1, 1, 1, 1) each"""

    near: Tensor
    rest: Tensor

    @staticmethod
    def of(eps: Sequence[Fraction], x: Tensor) -> "_Radius":
        near = [float(each) for each in eps]
        rest = [round_down(each - Fraction(start)) for each, start in zip(eps, near, strict=True)]
        pair = torch.tensor([near, rest], dtype=torch.float64, device=x.device)[:, :, None, None, None]
        return _Radius(pair[0], pair[1])

    def holds(self, distance: tuple[Tensor, Tensor]) -> Tensor:
        """Return distance <= eps, exactly, for a distance given as its rounding and the exact rest.

        Rounding is monotone, so the rests decide only where both round to the same float64.
        """
        near, rest = distance
        return (near < self.near) | ((near == self.near) & (rest <= self.rest))


def _bound(x: Tensor, radius: _Radius, end: float) -> Tensor:
    """Return the last float inside the ball, on the way from x to `end` (0 or 1), in x's own precision."""
    exact, sign = x.double(), 1.0 if end else -1.0
    limit = torch.full_like(x, end)

    def inside(point: Tensor) -> Tensor:
        near, rest = _difference(point.double(), exact)
        return radius.holds((sign * near, sign * rest))

    near, rest = _difference(exact, -sign * radius.near)
    guess = (near + (rest + sign * radius.rest)).clamp(0, 1).to(x.dtype)  # right up to an ulp or two
    guess = torch.where(inside(guess), guess, torch.nextafter(guess, x))
    guess = torch.where(inside(guess), guess, torch.nextafter(guess, x))
    further = torch.nextafter(guess, limit)
    guess = torch.where(inside(further), further, guess)
    return torch.where(inside(guess), guess, x)


def _difference(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Return a - b, rounded, and what the rounding left out: their sum is exact (Knuth's TwoSum)."""
    near = a - b
    part = near - a
    return near, (a - (near - part)) - (b + part)


@dataclass(frozen=True)
class Attacked:
    """The result of an attack on a batch of images.

    images: (B, C, H, W), inputs of the network within the ball and its domain: the image that fools it where there is
    one, else the strongest attempt; prediction: (B,) int64, their classes at p = inf; broken: (B,) bool: these are not
    the labels; size: (B,) float64, the largest change of a pixel, see `size`.
    """

    images: Tensor
    prediction: Tensor
    broken: Tensor
    size: Tensor

    @staticmethod
    def of(network: Network, images: Tensor, x: Tensor, y: Tensor) -> "Attacked":
        """Classify attacked images; x, y: the originals and their labels."""
        prediction = network.predict(images)
        return Attacked(images, prediction, prediction != y, size(images, x))


class Attack(ABC):
    """Searches the closed eps-ball within [0, 1] for images that the network gets wrong.

    An attack implements `search`. Its results are checked here: images are clipped to the ball in exact arithmetic, and
    the network, in eval mode and at p = inf, classifies them again. Misclassified images count as broken, with size 0,
    and are not searched. The same seed gives the same result for the same batch.
    """

    name: str

    def __call__(self, network: object, x: Any, y: Any, eps: Eps | Sequence[Eps]) -> Attacked:
        """Attack the inputs x (B, C, H, W) of a network, with labels y (B,); eps: one, or one for each image.

        Networks, samples and labels are taken as in `linfdist.certify`; y may be None if x is a data set with labels.

        An exact network is attacked through the nearest one in floats. What is found there is moved to the nearest
        8-bit image of the ball and of the network's domain, and tested on the integers.

        The network keeps its gradients and mode. Raises ValueError for a network in training mode.
        """
        several = not is_number(eps)
        if several and not isinstance(eps, Sequence):
            raise TypeError(f"eps = {eps!r}: must be text or a number, or a list with one of these for each image")
        radii = [parse_eps(each) for each in (cast(Sequence[Eps], eps) if several else [cast(Eps, eps)])]
        network, x, y = opened(network, x, y)
        if several and len(radii) != len(x):
            raise ValueError(f"eps holds {len(radii)} radii for {len(x)} images: give one, or one for each image")
        floats = network.floats
        with torch.inference_mode(False), torch.no_grad(), frozen(floats):
            inputs, y = x.clone(), y.to(torch.int64, copy=True)  # what was made in inference mode has no gradients
            pixels = network.to_pixels(inputs)
            ball, images = Ball.around(pixels, radii), pixels.clone()
            right = ((floats.predict(pixels) == y) & (ball.eps > 0).flatten()).nonzero()[:, 0]
            if len(right):
                images[right] = self.search(floats, pixels[right], y[right], ball[right])
            images = ball.clip(torch.where(images.isnan(), pixels, images))
            return Attacked.of(network, network.nearest(images, inputs, radii), inputs, y)

    @abstractmethod
    def search(self, network: PixelNet, x: Tensor, y: Tensor, ball: Ball) -> Tensor:
        """Return images (B, C, H, W) meant to be misclassified; x are correct, B >= 1. Called without gradients."""


def opened(model: object, data: Any, y: Any) -> tuple[Network, Tensor, Tensor]:
    """Return a network, its inputs and their labels; raise for what cannot be attacked, with the reason."""
    network, x, labels, _ = as_asked(model, data, y)
    if labels is None:
        raise TypeError(f"y: {described(data)} has no labels, which an attack needs: give them as y")
    if any(module.training for module in network.floats.modules()):
        raise ValueError("a network in training mode cannot be attacked: call .eval() first")
    check_plain(x, "x")
    network.check_images(x)
    pixels = network.to_pixels(x)
    if not ((pixels >= 0) & (pixels <= 1)).all():  # NaN fails too
        raise ValueError(
            f"pixels must lie in [0, 1], got values from {float(pixels.min())!r} to {float(pixels.max())!r}"
        )
    if network.classes < 2:
        raise ValueError("a network with one class cannot be attacked: it needs at least two classes")
    check_labels(network.classes, labels, len(x))  # a label that is no class would pass for broken
    return network, x, labels


@contextmanager
def frozen(network: PixelNet) -> Iterator[None]:
    """Compute no gradients for the weights inside: those of the pixels alone are cheaper, and no `.grad` is left."""
    learned = [parameter for parameter in network.parameters() if parameter.requires_grad]
    try:
        for parameter in learned:
            parameter.requires_grad_(False)
        yield
    finally:
        for parameter in learned:
            parameter.requires_grad_(True)
