"""Small turns, stretches and slides of images, drawn anew at every visit: for networks that overfit."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import grid_sample

from .augment import send


@dataclass(frozen=True)
class Warp:
    """Describe the random maps of the plane, which are drawn for each image on its own.

    turn: degrees, in both directions. stretch: each side becomes up to 1 + stretch times as long, or as short.
    slide: pixels, whole or not, in both directions and along both sides.
    share: the probability that an image is warped; the others stay as they are.
    """

    turn: float = 0.0
    stretch: float = 0.0
    slide: float = 0.0
    share: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise ValueError(f"the share of warped images must be between 0 and 1, got {self.share}")
        for name in ("turn", "stretch", "slide"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be a number that is not negative, got {getattr(self, name)}")

    @property
    def changes(self) -> bool:
        """Whether images can come out other than they went in."""
        return self.share > 0 and max(self.turn, self.stretch, self.slide) > 0

    def draw(self, batch: int, generator: torch.Generator) -> Tensor:
        """Draw for each image of a batch, on the CPU: whether it is warped, then five numbers in [-1, 1). (B, 6)

        From `generator` alone: the same state gives the same numbers, whatever the number of threads.
        """
        drawn = torch.rand(batch, 6, generator=generator, dtype=torch.float32)
        return torch.cat([(drawn[:, :1] < self.share).float(), 2 * drawn[:, 1:] - 1], 1)

    def apply(self, pixels: Tensor, drawn: Tensor) -> Tensor:
        """Warp images by what was drawn for them: float32 (B, C, H, W) in [0, 1] -> the same, on their device.

        Values between pixels are interpolated, and what comes in from outside repeats the border. Interpolation rounds:
        another kind of device, or another instruction set, may give other last bits. The number of threads and the
        number of images at a time do not change them.
        """
        (chosen,) = drawn[:, 0].nonzero(as_tuple=True)
        if not len(chosen):
            return pixels
        places = self._places(send(drawn[chosen, 1:], pixels.device), *pixels.shape[2:])
        chosen = send(chosen, pixels.device)
        warped = grid_sample(pixels[chosen], places, padding_mode="border", align_corners=False)
        return pixels.index_copy(0, chosen, warped.clamp(0, 1))

    def _places(self, drawn: Tensor, height: int, width: int) -> Tensor:
        """Return where each pixel of the results comes from, as torch wants it: sides run from -1 to 1. (B, H, W, 2)

        Torch's own `affine_grid` does this by a product of small matrices, which takes half of the time of a warp.
        """
        # All five are those of the place that is looked up: the picture moves the other way.
        turn, wide, high, right, down = drawn[:, :, None, None].unbind(1)  # (B, 1, 1) each
        angle = turn * math.radians(self.turn)
        wide, high = (torch.exp(side * math.log1p(self.stretch)) for side in (wide, high))
        x, y = (wide * _middles(width, drawn), high * _middles(height, drawn)[:, None])  # in pixels, from the centre
        across = angle.cos() * x - angle.sin() * y + right * self.slide
        along = angle.sin() * x + angle.cos() * y + down * self.slide
        return torch.stack([across * (2 / width), along * (2 / height)], 3)


def _middles(size: int, like: Tensor) -> Tensor:
    """The middles of a side's pixels, measured from its centre."""
    return torch.arange(size, dtype=like.dtype, device=like.device) - (size - 1) / 2
