"""The smallest perturbation that an attack finds for each image."""

from fractions import Fraction
from typing import Any

import torch
from torch import Tensor

from ..eps import Eps, parse_eps
from ..models import PixelNet
from .base import Attack, Attacked, opened
from .strong import STAGES, Strong

FIRST = tuple(Fraction(k, 8) for k in (1, 2, 4, 6, 8, 12, 16, 32))  # the radii of the first round over `start`; and 1
GRID = 8  # later rounds cut what is left into so many parts
CLOSE = Fraction(1, 500)  # the search ends when it could improve by this part at most
HALVINGS = 10  # of the way from an attacked image back to the original


def smallest(
    network: object,
    x: Any,
    y: Any,
    start: Eps = Fraction(1, 4),
    rounds: int = 4,
    attack: Attack | None = None,
) -> Attacked:
    """Return the smallest successful perturbation found for each image, for a few images.

    network, x, y: see `Attack.__call__`; start: a first guess of their sizes; rounds: the largest number of
    attacks, each at several radii between the largest failure and the best success; attack: the first stages of
    `Strong` unless given. Images that nothing broke come back with broken = False and the last attempt. A success
    bounds the robust radius from above; a failure proves nothing.
    """
    guess = parse_eps(start, name="start")
    if not guess:
        raise ValueError("start = 0: must be above 0 and at most 1, on the 0–1 intensity scale")
    if rounds < 1:
        raise ValueError(f"rounds = {rounds}: must be at least 1")
    network, x, y = opened(network, x, y)
    attack = attack or Strong(stages=STAGES[:4])
    floats, pixels = network.floats, network.to_pixels(x)
    searches = [_Search(image) for image in pixels]
    first = dict.fromkeys([*(min(guess * part, Fraction(1)) for part in FIRST), Fraction(1)])
    tries = [(k, radius) for k in range(len(x)) for radius in first]
    for _ in range(rounds):
        if not tries:
            break
        index, radii = [k for k, _ in tries], [radius for _, radius in tries]
        found = _towards(floats, pixels[index], y[index], attack(floats, pixels[index], y[index], radii))
        for (k, radius), image, broken, its_size in zip(
            tries, found.images, found.broken.tolist(), found.size.tolist(), strict=True
        ):
            searches[k].enter(radius, image, broken, its_size)
        tries = [(k, radius) for k, search in enumerate(searches) for radius in search.next()]
    images = torch.stack([search.image for search in searches]) if searches else pixels.clone()
    with torch.no_grad():
        return Attacked.of(network, network.nearest(images, x, [Fraction(1)]), x, y)


class _Search:
    """The state of one image: its best success, if any, else the last attempt, and the radii that failed."""

    def __init__(self, image: Tensor) -> None:
        self.image, self.broken, self.size = image, False, Fraction(1)
        self.failures = [Fraction(0)]

    def enter(self, radius: Fraction, image: Tensor, broken: bool, size: float) -> None:
        if broken and (not self.broken or Fraction(size) < self.size):
            self.image, self.broken, self.size = image, True, Fraction(size)
        elif not broken:
            self.failures.append(radius)
            if not self.broken:
                self.image = image

    def next(self) -> list[Fraction]:
        """Return the radii to try next: [] if nothing can be gained, or if all of [0, 1] was tried without success."""
        if not self.broken and max(self.failures) >= self.size:
            return []
        failed = max((radius for radius in self.failures if radius < self.size), default=self.size)
        width = self.size - failed
        if width <= CLOSE * self.size:
            return []
        return [failed + width * k / GRID for k in range(1, GRID + 1 - self.broken)]  # the end too if it is unknown


@torch.no_grad()
def _towards(network: PixelNet, x: Tensor, y: Tensor, found: Attacked) -> Attacked:
    """Move successes straight towards the original image, for as long as they stay successes."""
    images, low, high = found.images, torch.zeros_like(found.size), torch.ones_like(found.size)
    for _ in range(HALVINGS):
        part = ((low + high) / 2).to(x.dtype)
        tried = (x + part[:, None, None, None] * (found.images - x)).clamp(0, 1)
        fooled = found.broken & (network.predict(tried) != y)
        images = torch.where(fooled[:, None, None, None], tried, images)
        low, high = torch.where(fooled, low, part.double()), torch.where(fooled, part.double(), high)
    return Attacked.of(network, images, x, y)
