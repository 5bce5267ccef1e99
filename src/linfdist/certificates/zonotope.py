"""Zonotopes of the pixels, pushed through the layers: bounds of the network as executed (DeepZ, Singh et al., 2018)."""

import math

import torch
from torch import Tensor

from ..models import PixelNet
from ..nn import Box
from ..nn.forms import forms_of, leads_of, lowest
from ..nn.zonotopes import lowest_over, zonotope_of
from .linear import ordinary

ELEMENTS = 1 << 25  # numbers of the error terms of a layer: 256 MB in float64, and a few times as much at work


class ZonotopeBounds:
    """Lower bounds of z[best] − z[other] over boxes of pixels, of the network as executed.

    There are as many error terms as memory allows; beyond that, the smallest ones are merged into intervals, which
    costs tightness alone. TypeError, naming the layer, if the network has one that does not map zonotopes.
    """

    def __init__(self, network: PixelNet) -> None:
        self.network = network
        shapes = network.body.shapes(network.shape)
        widest = max(math.prod(shape) for shape in shapes)
        bent = sum(math.prod(shape) for layer, shape in zip(network.body, shapes, strict=False) if layer.bends)
        self.room = max(1, ELEMENTS // widest)
        self.few = max(1, ELEMENTS // (widest * (math.prod(network.shape) + bent)))  # images at once
        blank = network.any_tensor.new_zeros(1, *network.shape)
        self._leads(Box(blank, blank), blank.new_zeros(1, dtype=torch.int64))  # whatever has no zonotopes is named here

    def leads(self, pixels: Box, best: Tensor) -> Tensor:
        """(b, classes) float64: lower bounds of z[best] − z[j] over the boxes; infinity at the best class itself, and
        −infinity where nothing is known. pixels: (b, C, H, W), in the network's precision; best: (b,).
        """
        if not len(best):
            return torch.empty(0, self.network.classes, dtype=torch.float64, device=best.device)
        sides = zip(pixels.lower.split(self.few), pixels.upper.split(self.few), best.split(self.few), strict=True)
        apart = torch.cat([self._leads(Box(low, high), some) for low, high, some in sides])
        return apart.where(apart.isfinite(), -torch.inf).scatter(1, best[:, None], torch.inf)

    def _leads(self, pixels: Box, best: Tensor) -> Tensor:
        """Bounds (b, classes), as above, of images that fit into memory together; about 0 at the best class itself."""
        zonotope = zonotope_of(pixels, self.room, torch.float64)
        zonotope, box = self.network.body.zonotope_and_box(zonotope, pixels)
        box, classes = ordinary(box), self.network.classes
        row = torch.arange(len(best), device=best.device).repeat_interleave(classes)
        other = torch.arange(classes, device=best.device).repeat(len(best))
        forms = forms_of(leads_of(best, row, other, classes, torch.float64), row)
        forms = self.network.readout.pull_back(forms, box)
        return torch.fmax(lowest_over(forms, zonotope), lowest(forms, box)).unflatten(0, (len(best), classes))
