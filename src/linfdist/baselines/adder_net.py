"""Networks of ℓ1 or ℓ2 distances, in the style of AdderNets (Chen et al., 2020), to compare with."""

from collections.abc import Sequence
from itertools import pairwise

from ..models.base import PixelNet, check_sizes, config_of, first_layers
from ..nn import Flatten, LipschitzModule, Readout, Stack
from .adder import BatchNorm, NormLinear
from .networks import check_hidden
from .scores import Scores


class AdderNet(PixelNet):
    """Hidden layers of ℓ1 or ℓ2 distances, each with a batch normalisation, then a linear layer to the logits.

    shape: (C, H, W) of the images; classes: how many logits; mean, std: see `Normalize`; hidden: neurons of each hidden
    layer; norm: 1, as in AdderNets, or 2; crop: the side of the centre crop, if any. A layer of I inputs may stretch
    changes of the pixels by I^(1/norm): nothing is certified at a radius of any use.
    """

    def __init__(
        self,
        shape: Sequence[int],
        classes: int,
        mean: Sequence[float],
        std: float,
        hidden: Sequence[int],
        norm: int = 1,
        crop: int | None = None,
    ) -> None:
        check_hidden(hidden)
        super().__init__(check_sizes(shape, mean, crop, classes=classes), crop)
        self.config = {**config_of(AdderNet, locals()), "class": "baselines.AdderNet"}
        layers: list[LipschitzModule] = [*first_layers(mean, std, crop), Flatten()]
        sizes = [*layers[-1].output_shape((shape[0], *self.size)), *hidden]
        for inputs, outputs in pairwise(sizes):
            layers += [NormLinear(inputs, outputs, norm), BatchNorm(outputs)]
        self.body = Stack(*layers)
        self.scores = Scores(sizes[-1], classes)

    @property
    def readout(self) -> Readout:
        return self.scores
