"""SortNet (Zhang et al., NeurIPS 2022): 1-Lipschitz networks of sorted sums of distances."""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from ..models.base import PixelNet, check_sizes, config_of, first_layers
from ..nn import DistLinear, Flatten, LipschitzModule, MeanShift, Readout, Stack
from .networks import check_hidden
from .sort_linear import TERMS, NearestSorted, SortLinear


class SortNet(PixelNet):
    """Hidden layers of sorted sums, each with a mean shift; the first is an ℓ∞-dist layer, and the last gives logits.

    shape: (C, H, W) of the images; classes: how many logits; mean, std: see `Normalize`; hidden: neurons of each hidden
    layer; keep, terms: see `SortLinear`; identity_init: see `DistNet`; crop: the side of the centre crop, if any. The
    pixels are not dropped in training, so that the first layer is one of plain distances, as the authors' is. With the
    identity to start with, a layer of few neurons that loses one of them jumps by 10, and learns less: the default is
    to start without it.
    """

    def __init__(
        self,
        shape: Sequence[int],
        classes: int,
        mean: Sequence[float],
        std: float,
        hidden: Sequence[int],
        keep: float = 0.7,
        terms: int = TERMS,
        identity_init: bool = False,
        crop: int | None = None,
    ) -> None:
        check_hidden(hidden)
        super().__init__(check_sizes(shape, mean, crop, classes=classes), crop)
        self.config = {**config_of(SortNet, locals()), "class": "baselines.SortNet"}
        layers: list[LipschitzModule] = [*first_layers(mean, std, crop), Flatten()]
        sizes = [*layers[-1].output_shape((shape[0], *self.size)), *hidden]
        for number, (inputs, outputs) in enumerate(pairwise(sizes)):
            identity = identity_init and inputs <= outputs
            if number == 0:
                layers.append(DistLinear(inputs, outputs, identity_init=identity))
            else:
                layers.append(SortLinear(inputs, outputs, keep, terms, identity_init=identity))
            layers.append(MeanShift(outputs))
        self.body = Stack(*layers)
        self.last = NearestSorted(sizes[-1], classes, keep, terms)

    @property
    def readout(self) -> Readout:
        return self.last

    def dropped(self, x: Tensor, p: float, generator: torch.Generator) -> Tensor:
        """The logits (B, classes) while hidden neurons are dropped at random, with ℓp distances: see `SortLinear`."""
        self.check_images(x)
        for layer in self.body:
            x = layer.dropped(x, p, generator) if isinstance(layer, SortLinear) else layer(x, p)
        return -self.last.neurons.dropped(x, p, generator)
