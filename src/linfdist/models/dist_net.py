"""The paper's networks: dist layers alone (Table 5), with an MLP on top, and convolutional ones with either end."""

import math
from collections.abc import Sequence
from itertools import pairwise

from ..nn import (
    Box,
    CenterCrop,
    Clip,
    DistConv2d,
    DistLinear,
    Flatten,
    Head,
    LipschitzModule,
    MeanPool,
    MeanShift,
    MirrorPairs,
    NearestClass,
    Normalize,
    Readout,
    Stack,
)
from ..nn.pixels import check_clip, check_pool
from .base import PixelNet, config_of


class DistNet(PixelNet):
    """ℓ∞-dist Net: `depth` dist layers, the last with `classes` neurons, a bias and no shift; g(x) = −x⁽ᴸ⁾ (Def. 3.2).

    shape: (C, H, W) of the images; classes: how many logits; width: neurons of each hidden layer; depth: dist layers,
    the last one included; mean, std: see `Normalize`; identity_init: hidden layers start as the identity wherever they
    are not narrower than their input; mean_shift: if False, hidden layers have a learned bias instead; crop: the side
    of the centre crop, if any; per_class: neurons of the last layer for each class, which are averaged; pool: sizes of
    blocks whose means the first dist layer sees (see `MeanPool`), in place of the pixels; clip: (low, high), if pixels
    are to be clipped (see `Clip`) before they are normalised; mirror_pairs: whether the layers above see the larger and
    the smaller of each pixel and its mirror image (see `MirrorPairs`), so that both images have the same logits.
    """

    def __init__(
        self,
        shape: Sequence[int],
        classes: int,
        width: int,
        depth: int,
        mean: Sequence[float],
        std: float,
        identity_init: bool = True,
        mean_shift: bool = True,
        crop: int | None = None,
        per_class: int = 1,
        pool: Sequence[int] = (),
        clip: Sequence[float] | None = None,
        mirror_pairs: bool = False,
    ) -> None:
        sizes = {"classes": classes, "width": width, "depth": depth, "per_class": per_class}
        super().__init__(check_sizes(shape, mean, crop, **sizes), crop)
        first = first_layers(mean, std, crop, clip, mirror_pairs)
        vector, inputs = to_vectors((shape[0], *self.size), pool)
        self.config = config_of(DistNet, locals())
        widths = [inputs, *[width] * (depth - 1)]
        self.body = Stack(*first, vector, *hidden_layers(widths, identity_init, mean_shift))
        self.last = NearestClass(widths[-1], classes, per_class)

    @property
    def readout(self) -> Readout:
        return self.last

    def forward_box(self, box: Box) -> Box:
        """Bound the computed logits over a box of images; eval mode only. `lipschitz` holds for the logits too."""
        return self.last.forward_box(self.features_box(box))  # (B, classes) each


class DistNetMLP(PixelNet):
    """ℓ∞-dist Net+MLP (Section 6): `depth` dist layers of `width` neurons each, all with shift, then the `Head`.

    head: neurons of its hidden layer. The other arguments are those of `DistNet`.
    """

    def __init__(
        self,
        shape: Sequence[int],
        classes: int,
        width: int,
        depth: int,
        mean: Sequence[float],
        std: float,
        identity_init: bool = True,
        mean_shift: bool = True,
        crop: int | None = None,
        head: int = 512,
        pool: Sequence[int] = (),
        clip: Sequence[float] | None = None,
        mirror_pairs: bool = False,
    ) -> None:
        super().__init__(check_sizes(shape, mean, crop, classes=classes, width=width, depth=depth, head=head), crop)
        first = first_layers(mean, std, crop, clip, mirror_pairs)
        vector, inputs = to_vectors((shape[0], *self.size), pool)
        self.config = config_of(DistNetMLP, locals())
        self.body = Stack(*first, vector, *hidden_layers([inputs, *[width] * depth], identity_init, mean_shift))
        self.head = Head(width, head, classes)

    @property
    def readout(self) -> Readout:
        return self.head


class ConvDistNet(PixelNet):
    """Convolutional ℓ∞-dist Net: the convolutions of `ConvDistNetMLP`, then two dist layers, the last with the classes.

    depth counts all of them; dense: neurons of the first dist layer. The other arguments are those of `DistNet`.
    """

    def __init__(
        self,
        shape: Sequence[int],
        classes: int,
        width: int,
        depth: int,
        mean: Sequence[float],
        std: float,
        identity_init: bool = True,
        mean_shift: bool = True,
        crop: int | None = None,
        per_class: int = 1,
        dense: int = 512,
        clip: Sequence[float] | None = None,
        mirror_pairs: bool = False,
    ) -> None:
        sizes = {"classes": classes, "width": width, "depth": depth, "per_class": per_class, "dense": dense}
        super().__init__(check_sizes(shape, mean, crop, **sizes), crop)
        if depth < 3:
            raise ValueError(f"depth must be at least 3, got {depth}: a convolution, and two dist layers above it")
        first = first_layers(mean, std, crop, clip, mirror_pairs)
        self.config = config_of(ConvDistNet, locals())
        layers, inputs = convolutions((shape[0], *self.size), width, depth - 2, identity_init, mean_shift)
        self.body = Stack(*first, *layers, Flatten(), *hidden_layers([inputs, dense], identity_init, mean_shift))
        self.last = NearestClass(dense, classes, per_class)

    @property
    def readout(self) -> Readout:
        return self.last

    forward_box = DistNet.forward_box


class ConvDistNetMLP(PixelNet):
    """Convolutional ℓ∞-dist Net+MLP (Table 8, there with width = 128 and depth = 6, where padding 1 gives its FLOPs).

    depth - 1 convolutions, 3×3 with padding 1: two of `width` channels, the others of twice as many, the third with
    stride 2; then a dist layer of 4 `width` neurons; all with shift; then the `Head`. See `DistNetMLP`.
    """

    def __init__(
        self,
        shape: Sequence[int],
        classes: int,
        width: int,
        depth: int,
        mean: Sequence[float],
        std: float,
        identity_init: bool = True,
        mean_shift: bool = True,
        crop: int | None = None,
        head: int = 512,
        clip: Sequence[float] | None = None,
        mirror_pairs: bool = False,
    ) -> None:
        super().__init__(check_sizes(shape, mean, crop, classes=classes, width=width, depth=depth, head=head), crop)
        first = first_layers(mean, std, crop, clip, mirror_pairs)
        self.config = config_of(ConvDistNetMLP, locals())
        layers, inputs = convolutions((shape[0], *self.size), width, depth - 1, identity_init, mean_shift)
        last = hidden_layers([inputs, 4 * width], identity_init, mean_shift)
        self.body = Stack(*first, *layers, Flatten(), *last)
        self.head = Head(4 * width, head, classes)

    @property
    def readout(self) -> Readout:
        return self.head


def convolutions(
    shape: tuple[int, ...], width: int, count: int, identity_init: bool, mean_shift: bool
) -> tuple[list[LipschitzModule], int]:
    """Make `count` convolutional layers above normalised images (C, H, W), and count the outputs of the last one.

    They are 3×3 with padding 1: two of `width` channels, the others of twice as many, the third with stride 2.
    """
    channels = [shape[0], *[width if i < 2 else 2 * width for i in range(count)]]
    layers: list[LipschitzModule] = []
    for i, (inputs, outputs) in enumerate(pairwise(channels)):
        identity = identity_init and inputs <= outputs
        conv = DistConv2d(
            inputs, outputs, 3, stride=2 if i == 2 else 1, padding=1, bias=not mean_shift, identity_init=identity
        )
        layers += [conv, MeanShift(outputs)] if mean_shift else [conv]
        shape = conv.output_shape(shape)
    return layers, math.prod(shape)


def hidden_layers(sizes: Sequence[int], identity_init: bool, mean_shift: bool) -> list[LipschitzModule]:
    """Make dist layers from each size to the next: without bias, since the mean shift after each makes up for it."""
    layers: list[LipschitzModule] = []
    for inputs, outputs in pairwise(sizes):
        identity = identity_init and inputs <= outputs
        layers.append(DistLinear(inputs, outputs, bias=not mean_shift, identity_init=identity))
        if mean_shift:
            layers.append(MeanShift(outputs))
    return layers


def check_sizes(shape: Sequence[int], mean: Sequence[float], crop: int | None, **sizes: int) -> tuple[int, int, int]:
    """Return the shape (C, H, W) as a tuple; raise ValueError for invalid sizes."""
    if len(shape) != 3 or min(shape) < 1:
        raise ValueError(f"shape must be (channels, height, width), each at least 1, got {shape!r}")
    if len(mean) != shape[0]:
        raise ValueError(f"mean must have one number for each of the {shape[0]} channels, got {mean!r}")
    if crop is not None and not 1 <= crop <= min(shape[1:]):
        raise ValueError(f"crop must be between 1 and the image's size {shape[1]}x{shape[2]}, got {crop!r}")
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name} must be at least 1, got {size!r}")
    return shape[0], shape[1], shape[2]


def first_layers(
    mean: Sequence[float],
    std: float,
    crop: int | None,
    clip: Sequence[float] | None = None,
    mirror_pairs: bool = False,
) -> list[LipschitzModule]:
    """Make the layers from pixels (B, C, H, W) to normalised images: a crop, clipping and mirror pairs, if any."""
    bounds = check_clip(clip)
    layers: list[LipschitzModule] = [] if crop is None else [CenterCrop(crop)]
    layers += [] if bounds is None else [Clip(*bounds)]
    return [*layers, Normalize(mean, std), *([MirrorPairs()] if mirror_pairs else [])]


def to_vectors(shape: tuple[int, ...], pool: Sequence[int]) -> tuple[LipschitzModule, int]:
    """Make the layer from normalised images (C, H, W) to the inputs of the first dist layer, and count these.

    pool: the sizes of the blocks whose means are the inputs; if it is empty, the inputs are the pixels. Raises
    ValueError if a block does not fit.
    """
    layer = MeanPool(pool) if check_pool(pool) else Flatten()
    return layer, layer.output_shape(shape)[0]
