"""An exact network under evaluation: it is attacked through its float form, and every success is tested on integers."""

from fractions import Fraction
from pathlib import Path

import torch
from torch import Tensor

from ..attacks import Attack, Attacked, smallest
from ..certificates import Certificate, certify
from ..eps import round_down
from ..exact import FrozenNet, as_floats
from .settings import parse_methods
from .subject import Subject, best_of, strongest, subject_of


class ExactSubject(Subject):
    """A network in integers. What an attack finds is moved to the nearest 8-bit image of the ball and of the domain."""

    def __init__(self, network: FrozenNet) -> None:
        self.network = network
        self.floats = as_floats(network)

    def sha256(self, file: Path | None) -> str:
        """The one that certificates of the network name, too."""
        return self.network.sha256

    @property
    def domain(self) -> str | None:
        return self.network.domain

    def check(self, images: Tensor) -> None:
        self.network.check_images(images)

    def prove(self, images: Tensor, labels: Tensor, eps: str, method: str, radii: bool) -> Certificate:
        names = strongest(parse_methods(method))
        return best_of([certify(self.network, images, eps, labels, method=each, radii=radii) for each in names])

    def attack(self, attack: Attack, images: Tensor, labels: Tensor, eps: Fraction) -> Attacked:
        found = attack(self.floats, images / 255, labels, eps)
        return self._on_the_grid(found.images, images, labels, int(255 * eps))

    def smallest(self, images: Tensor, labels: Tensor, start: Fraction, rounds: int) -> Attacked:
        found = smallest(self.floats, images / 255, labels, start, rounds=rounds)
        return self._on_the_grid(found.images, images, labels, 255)

    def predictions(self, pixels: Tensor) -> list[int]:
        return self.network((pixels * 255).round().to(torch.uint8)).argmax(1).tolist()

    def _on_the_grid(self, attempts: Tensor, images: Tensor, labels: Tensor, levels: int) -> Attacked:
        """Round attempts to 8-bit images that are at most `levels` away from the originals, and test these.

        Sizes are rounded down to float64, like the radii, so that the two compare as whole levels do.
        """
        before, low, high = images.int(), self.network.lower.int(), self.network.upper.int()
        tried = (attempts.double() * 255).round().int()
        tried = tried.clamp(before - levels, before + levels).clamp(low, high)
        sizes = (tried - before).abs().flatten(1).amax(1)
        broken = self.network(tried.to(torch.uint8)).argmax(1) != labels
        rounded = [round_down(Fraction(size, 255)) for size in sizes.tolist()]
        return Attacked(tried.double() / 255, broken, torch.tensor(rounded, dtype=torch.float64))


@subject_of.register
def _(network: FrozenNet, shape: object) -> Subject:
    return ExactSubject(network)
