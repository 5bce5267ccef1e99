"""Rival networks: ReLUs, sorted groups, sorted sums of distances, and ℓ1 and ℓ2 distances."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from ..models.base import PixelNet, config_of
from ..models.dist_net import check_sizes, first_layers
from ..nn import DistLinear, Flatten, LipschitzModule, MeanShift, Readout, Stack
from .activations import GroupSort, ReLU
from .adder import BatchNorm, NormLinear
from .affine import Conv2d, Linear, Scores
from .sort_linear import TERMS, NearestSorted, SortLinear

# Convolutions as [channels, kernel, stride, padding], then hidden linear layers.
SIZES: dict[str, dict[str, Any]] = {
    "mlp": {"convolutions": [], "hidden": [512, 512]},
    "small": {"convolutions": [[16, 4, 2, 1], [32, 4, 2, 1]], "hidden": [100]},  # Wong & Kolter, 2018
    "medium": {  # Gowal et al., 2018, as are the next
        "convolutions": [[32, 3, 1, 1], [32, 4, 2, 1], [64, 3, 1, 1], [64, 4, 2, 1]],
        "hidden": [512, 512],
    },
    "large": {
        "convolutions": [[64, 3, 1, 1], [64, 3, 1, 1], [128, 3, 2, 1], [128, 3, 1, 1], [128, 3, 1, 1]],
        "hidden": [512],
    },
}


class ReLUNet(PixelNet):
    """Convolutions and hidden linear layers, each with a ReLU, then a linear layer to the logits.

    shape: (C, H, W) of the images; classes: how many logits; mean, std: see `Normalize`; convolutions: one list
    [channels, kernel, stride, padding] for each; hidden: neurons of each hidden linear layer; crop: the side of the
    centre crop, if any. There must be at least one hidden layer, of either kind.
    """

    def __init__(
        self,
        shape: Sequence[int],
        classes: int,
        mean: Sequence[float],
        std: float,
        convolutions: Sequence[Sequence[int]] = (),
        hidden: Sequence[int] = (),
        crop: int | None = None,
    ) -> None:
        check_layers(convolutions, hidden)
        super().__init__(check_sizes(shape, mean, crop, classes=classes), crop)
        self.config = {**config_of(ReLUNet, locals()), "class": "baselines.ReLUNet"}
        self.config["convolutions"] = [list(each) for each in convolutions]
        layers, features = hidden_layers((shape[0], *self.size), convolutions, hidden, ReLU)
        self.body = Stack(*first_layers(mean, std, crop), *layers)
        self.scores = Scores(features, classes)

    @property
    def readout(self) -> Readout:
        return self.scores


class GroupSortNet(PixelNet):
    """A `ReLUNet` with sorted groups of `group` channels or neurons in place of ReLUs.

    Its Lipschitz constant is computed from its weights, whatever these are. `methods.GroupSortHinge` trains the network
    and keeps the constant at 1/std.
    """

    def __init__(
        self,
        shape: Sequence[int],
        classes: int,
        mean: Sequence[float],
        std: float,
        convolutions: Sequence[Sequence[int]] = (),
        hidden: Sequence[int] = (),
        group: int = 2,
        crop: int | None = None,
    ) -> None:
        check_layers(convolutions, hidden)
        super().__init__(check_sizes(shape, mean, crop, classes=classes), crop)
        self.config = {**config_of(GroupSortNet, locals()), "class": "baselines.GroupSortNet"}
        self.config["convolutions"] = [list(each) for each in convolutions]
        layers, features = hidden_layers((shape[0], *self.size), convolutions, hidden, partial(GroupSort, group))
        self.body = Stack(*first_layers(mean, std, crop), *layers)
        self.body.output_shape((shape[0], *self.size))  # ValueError unless groups are whole
        self.scores = Scores(features, classes)

    @property
    def readout(self) -> Readout:
        return self.scores


def hidden_layers(
    place: tuple[int, ...],
    convolutions: Sequence[Sequence[int]],
    hidden: Sequence[int],
    activation: Callable[[], LipschitzModule],
) -> tuple[list[LipschitzModule], int]:
    """Build convolutions and linear layers, each with an activation, for images of shape `place`.

    Returns the layers and the number of features.
    """
    layers: list[LipschitzModule] = []
    for channels, kernel, stride, padding in convolutions:
        layers += [Conv2d(place[0], channels, kernel, stride, padding), activation()]
        place = layers[-2].output_shape(place)
    layers.append(Flatten())
    sizes = [*layers[-1].output_shape(place), *hidden]
    for inputs, outputs in pairwise(sizes):
        layers += [Linear(inputs, outputs), activation()]
    return layers, sizes[-1]


def sized(name: str, width: float = 1.0) -> dict[str, Any]:
    """Return the convolutions and hidden layers of the named size, `width` times as wide, as arguments of `ReLUNet`."""
    if name not in SIZES:
        raise ValueError(f"size = {name!r}: must be one of {', '.join(SIZES)}")
    if not 0 < width <= 64:
        raise ValueError(f"width = {width!r}: must be more than 0 and at most 64, a factor for the numbers of neurons")
    size = SIZES[name]
    convolutions = [[max(1, round(channels * width)), *rest] for channels, *rest in size["convolutions"]]
    return {"convolutions": convolutions, "hidden": [max(1, round(neurons * width)) for neurons in size["hidden"]]}


def depth_and_width(name: str, width: float = 1.0) -> list[int]:
    """Return as many hidden layers as a size of `sized` has of either kind, each of 512 · width neurons.

    They are for networks that are fully connected, such as those of distances.
    """
    size = sized(name, width)
    return [max(1, round(512 * width))] * (len(size["convolutions"]) + len(size["hidden"]))


def check_layers(convolutions: object, hidden: object) -> None:
    """Raise TypeError or ValueError unless these arguments, which may come from a file, describe layers."""
    check_hidden(hidden, needed=False)
    four = isinstance(convolutions, Sequence) and all(isinstance(each, Sequence) for each in convolutions)
    if not isinstance(convolutions, Sequence) or not four:
        raise TypeError(f"convolutions must be lists [channels, kernel, stride, padding], got {convolutions!r:.60}")
    for each in convolutions:
        if len(each) != 4 or not all(type(number) is int for number in each):
            raise ValueError(f"a convolution must be [channels, kernel, stride, padding], got {each!r:.60}")
    if not convolutions and not hidden:
        raise ValueError("there must be at least one hidden layer: give convolutions, or hidden, or both")
    if min((each[0] for each in convolutions), default=1) < 1:
        raise ValueError(f"every layer needs at least one neuron, got convolutions = {convolutions!r:.60}")


def check_hidden(hidden: object, needed: bool = True) -> None:
    """Raise TypeError or ValueError unless `hidden`, which may come from a file, describes fully connected layers."""
    if not isinstance(hidden, Sequence) or not all(type(each) is int for each in hidden):
        raise TypeError(f"hidden must be a list of whole numbers such as [512, 512], got {hidden!r:.60}")
    if needed and not hidden:
        raise ValueError("there must be at least one hidden layer, such as hidden=[512, 512]")
    if min(hidden, default=1) < 1:
        raise ValueError(f"every layer needs at least one neuron, got hidden = {hidden!r:.60}")


class AdderNet(PixelNet):
    """Hidden layers of ℓ1 or ℓ2 distances, each with a batch normalisation, then a linear layer to the logits.

    shape: (C, H, W) of the images; classes: how many logits; mean, std: see `Normalize`; hidden: neurons of each hidden
    layer; norm: 1, as in AdderNets, or 2; crop: the side of the centre crop, if any. A layer of I inputs may stretch
    changes of the pixels by I^(1/norm), so nothing is certified at a useful radius.
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


class SortNet(PixelNet):
    """Hidden layers of sorted sums, each with a mean shift; the first is an ℓ∞-dist layer, and the last gives logits.

    shape: (C, H, W) of the images; classes: how many logits; mean, std: see `Normalize`; hidden: neurons of each hidden
    layer; keep, terms: see `SortLinear`; identity_init: see `DistNet`; crop: the side of the centre crop, if any. The
    pixels are not dropped in training, so the first layer is one of plain distances, as in the authors' network. With
    identity_init, a layer of few neurons jumps by 10 when one of them is dropped, and learns less: the default is
    False.
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
        """Compute the logits (B, classes) with dropout of hidden neurons and ℓp distances, see `SortLinear.dropped`."""
        self.check_images(x)
        for layer in self.body:
            x = layer.dropped(x, p, generator) if isinstance(layer, SortLinear) else layer(x, p)
        return -self.last.neurons.dropped(x, p, generator)
