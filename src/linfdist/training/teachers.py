"""Distillation: the cross-entropy aims at the probabilities that trained networks give, in place of the labels."""

import torch
import torch.nn.functional as F
from torch import Tensor

from ..data import Info
from ..nn import CenterCrop
from ..recipes import Recipe
from .objective import load_mean

SCALES = (1e-3, 1e3)  # of logits
HALVINGS = 40


class Teachers:
    """The mean of the recipe's `teachers`: pixels (B, C, H, W) -> probabilities (B, M).

    It is no module, because its weights are neither trained nor part of a checkpoint. Its logits are multiplied by the
    scale at which their cross-entropy on some training images is smallest: networks that were trained for margins may
    have logits of any size.
    """

    def __init__(
        self,
        recipe: Recipe,
        info: Info,
        size: tuple[int, int],
        samples: tuple[Tensor, Tensor],
        device: torch.device,
    ) -> None:
        """size: of the images in training, after crops. samples: pixels in [0, 1] and labels."""
        network, shape, (pixels, labels) = load_mean("teachers", recipe.teachers), (info.shape[0], *size), samples
        if shape not in network.shapes:
            raise _refused(recipe, f"they take images {network.shape}, and those of this training are {shape}")
        if network.classes != info.num_classes:
            raise _refused(recipe, f"they know {network.classes} classes, and there are {info.num_classes}")
        if shape != info.shape:
            pixels = CenterCrop(size[0])(pixels)
        self.checksum, self.network = network.checksum(), network.float().to(device).eval()
        with torch.no_grad():
            z = torch.cat([self.network(few.to(device)) for few in pixels.split(recipe.batch_size)]).cpu()
        self.scale = best_scale(z, labels)
        if self.scale < 1.01 * SCALES[0]:
            raise _refused(recipe, "they say nothing of these labels; are their classes others, or in another order?")
        likely = float(F.softmax(self.scale * z, 1).gather(1, labels[:, None]).mean())
        self.note = f"teachers: they give the right class of training images a probability of {likely:.2f} on average"

    def __call__(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            return F.softmax(self.scale * self.network(x), 1)


def _refused(recipe: Recipe, why: str) -> ValueError:
    return ValueError(f"teachers = {recipe.teachers}: {why}")


def best_scale(z: Tensor, y: Tensor) -> float:
    """Return the scale s, within SCALES, at which the cross-entropy of s·z is smallest: it is convex in s."""
    leads = z.double() - z.double().gather(1, y[:, None])
    low, high = SCALES
    for _ in range(HALVINGS):
        middle = (low * high) ** 0.5
        slope = (F.softmax(middle * leads, 1) * leads).sum(1).mean()  # the derivative of the cross-entropy by s
        low, high = (middle, high) if slope < 0 else (low, middle)
    return middle
