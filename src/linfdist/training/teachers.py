"""Distillation: the cross-entropy aims at the probabilities that trained networks give, in place of the labels."""

import torch
import torch.nn.functional as F
from torch import Tensor

from ..data import Info
from ..models import Mean, PixelNet, load_floats
from ..recipes import Recipe

SCALES = (1e-3, 1e3)  # of logits
HALVINGS = 40


class Teachers:
    """The mean of the recipe's `teachers`: pixels (B, C, H, W) -> probabilities (B, M).

    It is no module, because its weights are neither trained nor part of a checkpoint. Its logits are multiplied by the
    scale at which their cross-entropy on some training images is smallest: networks that were trained for margins may
    have logits of any size.
    """

    def __init__(self, recipe: Recipe, info: Info, size: tuple[int, int], samples: tuple[Tensor, Tensor]) -> None:
        """size: of the images in training, after crops. samples: pixels in [0, 1] and labels, on the right device."""
        pixels, labels = samples
        try:
            networks = [load_floats(each) for each in recipe.teachers]
            self.network: PixelNet = networks[0] if len(networks) == 1 else Mean(networks)
            shape = (info.shape[0], *size)
            if shape not in self.network.shapes:
                raise ValueError(f"they take images {self.network.shape}, and those of this training are {shape}")
            if self.network.classes != info.num_classes:
                raise ValueError(f"they know {self.network.classes} classes, and there are {info.num_classes}")
        except (OSError, TypeError, ValueError) as error:
            raise ValueError(f"teachers = {recipe.teachers}: {error}") from None
        self.network = self.network.to(pixels.device).eval()
        with torch.no_grad():
            logits = torch.cat([self.network(few) for few in pixels.split(recipe.batch_size)])
        self.scale = best_scale(logits, labels)

    def __call__(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            return F.softmax(self.scale * self.network(x), 1)


def best_scale(z: Tensor, y: Tensor) -> float:
    """Return the scale s, within SCALES, at which the cross-entropy of s·z is smallest: it is convex in s."""
    leads = z.double() - z.double().gather(1, y[:, None])
    low, high = SCALES
    for _ in range(HALVINGS):
        middle = (low * high) ** 0.5
        slope = (F.softmax(middle * leads, 1) * leads).sum(1).mean()  # the derivative of the cross-entropy by s
        low, high = (middle, high) if slope < 0 else (low, middle)
    return middle
