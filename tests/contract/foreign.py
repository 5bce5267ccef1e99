"""A layer and a network that are defined outside the package: they declare the contract, and nothing else is needed."""

import math
from fractions import Fraction

import torch
from torch import nn

from linfdist.models import PixelNet
from linfdist.nn import Box, Flatten, LipschitzModule, NearestClass, Normalize, Rounding, Stack
from linfdist.nn.base import gamma, widened
from linfdist.nn.dist import DistLinear


class GroupMean(LipschitzModule):
    """(B, F) -> (B, F / size): means of neighbouring features, which are 1-Lipschitz, but whose sums round."""

    lipschitz = 1.0

    def __init__(self, size):
        super().__init__()
        self.size = size

    def forward(self, x, p=math.inf):
        return x.unflatten(1, (-1, self.size)).mean(2)

    def forward_box(self, box):
        lower, upper = (side.double().unflatten(1, (-1, self.size)) for side in box)
        unit = torch.finfo(box.lower.dtype).eps / 2
        relative = gamma(self.size + 2, unit) + 2.0**-50 * (self.size + 2)
        slack = relative * torch.maximum(lower.abs(), upper.abs()).mean(2)
        return widened(lower.mean(2), upper.mean(2), slack, box.lower.dtype)

    def output_shape(self, shape):
        return (*shape[:-1], shape[-1] // self.size)

    def rounding(self, size, unit):
        return Rounding(size, size * self.size, (self.size + 2) * unit * size)


class GroupNet(PixelNet):
    """Distances, means of groups of them, distances to the classes."""

    def __init__(self, shape, classes, width, size, mean=0.3, std=0.4):
        super().__init__(shape, None)
        self.config = {}
        pixels = math.prod(shape)
        self.body = Stack(
            Normalize([mean] * shape[0], std), Flatten(), DistLinear(pixels, width * size), GroupMean(size)
        )
        self.far = NearestClass(width, classes)

    @property
    def readout(self):
        return self.far


class Amplifier(nn.Module):
    """A layer that declares nothing."""

    def forward(self, x, p=math.inf):
        return 1000 * x


def group_net(seed, shape=(1, 5, 5), classes=4, width=7, size=3):
    torch.manual_seed(seed)
    return GroupNet(shape, classes, width, size).eval()


def exact_group_mean(values, size):
    """The means of neighbouring features in exact arithmetic."""
    whole = [Fraction(value) for value in values]
    return [sum(whole[k : k + size]) / size for k in range(0, len(whole), size)]


__all__ = ["Amplifier", "Box", "GroupMean", "GroupNet", "exact_group_mean", "group_net"]
