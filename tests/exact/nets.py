"""Small networks, and what they must compute when frozen, written down a second time."""

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction

import torch
from torch import Tensor, nn

from linfdist.exact import FrozenHead, FrozenNet, freeze
from linfdist.exact.bounds import near_far
from linfdist.models import DistNet, DistNetMLP
from linfdist.nn import DistLinear, MeanShift, NearestClass, Normalize


def random_net(seed: int, shape=(1, 3, 3), width: int = 7, depth: int = 3, classes: int = 4, **options) -> DistNet:
    """Weights of size one, and shifts and biases of that order; a mean for each channel."""
    torch.manual_seed(seed)
    mean = [0.2 + 0.3 * channel for channel in range(shape[0])]
    return filled(DistNet(shape, classes, width, depth, mean, 0.31, identity_init=False, **options))


def random_mlp(seed: int, shape=(1, 3, 3), width: int = 7, depth: int = 2, classes: int = 4, head: int = 5, **options):
    """The same with a head."""
    torch.manual_seed(seed)
    mean = [0.2 + 0.3 * channel for channel in range(shape[0])]
    return filled(DistNetMLP(shape, classes, width, depth, mean, 0.31, identity_init=False, head=head, **options))


def filled(net):
    with torch.no_grad():
        for name, tensor in net.state_dict().items():
            if name.endswith(("bias", "running_mean")):
                tensor.copy_(torch.randn_like(tensor))
    return net.eval()


def images(count: int, shape=(1, 3, 3), seed: int = 0) -> Tensor:
    """Random, then corners of the pixel cube, then all black and all white."""
    generator = torch.Generator().manual_seed(seed)
    anything = torch.randint(256, (count, *shape), generator=generator)
    corners = 255 * torch.randint(2, (count, *shape), generator=generator)
    ends = torch.stack([torch.zeros(shape), torch.full(shape, 255)])
    return torch.cat([anything, corners, ends]).to(torch.uint8)


@dataclass(frozen=True)
class TwoPixels:
    """A frozen network and the class (256, 256) of every image of two pixels, -1 outside its domain."""

    frozen: FrozenNet
    classes: Tensor
    some: Tensor

    @classmethod
    def of(cls, net: DistNet | DistNetMLP, k: int, seed: int, narrow: bool) -> "TwoPixels":
        """For all images, or a random domain (narrow); `some` are twelve images of it."""
        generator = torch.Generator().manual_seed(seed)
        ends = (
            torch.randint(256, (2, 1, 1, 2), generator=generator)
            if narrow
            else torch.tensor([0, 255]).reshape(2, 1, 1, 1)
        )
        lower, upper = (bound.expand(1, 1, 2).to(torch.uint8) for bound in (ends.amin(0), ends.amax(0)))
        frozen = freeze(net, k=k, domain=(lower, upper))
        every = torch.cartesian_prod(torch.arange(256), torch.arange(256)).to(torch.uint8).reshape(-1, 1, 1, 2)
        inside = ((lower <= every) & (upper >= every)).flatten(1).all(1)
        classes = torch.full((256 * 256,), -1)
        classes[inside] = frozen(every[inside]).argmax(1)
        some = every[inside][torch.randint(int(inside.sum()), (12,), generator=generator)]
        return cls(frozen, classes.reshape(256, 256), some)

    def steady_levels(self, image: Tensor) -> int:
        """How many levels both pixels may change, within the domain, before the class does: by looking."""
        place = image.flatten().tolist()
        lower, upper = (bound.flatten().tolist() for bound in (self.frozen.lower, self.frozen.upper))
        for levels in range(1, 256):
            near = [
                slice(max(a - levels, low), min(a + levels, high) + 1)
                for a, low, high in zip(place, lower, upper, strict=True)
            ]
            if (self.classes[tuple(near)] != self.classes[tuple(place)]).any():
                return levels - 1
        return 255


def exact_logits(net: DistNet, image: Tensor) -> list[Fraction]:
    """The float network in exact arithmetic, times its std: rational numbers, from the definition."""
    std = next(Fraction(layer.std.item()) for layer in net.body if isinstance(layer, Normalize))
    return [-value * std for value in exact_outputs([*net.body, net.last], image)]


def exact_outputs(layers: Iterable[nn.Module], image: Tensor) -> list[Fraction]:
    std = next(Fraction(layer.std.item()) for layer in layers if isinstance(layer, Normalize))
    x: list[Fraction] = []
    for layer in layers:
        if isinstance(layer, Normalize):
            for channel, mean in zip(image, layer.mean.flatten().tolist(), strict=True):
                x += [(Fraction(int(pixel), 255) - Fraction(mean)) / std for pixel in channel.flatten()]
        elif isinstance(layer, DistLinear | NearestClass):
            bias = [0.0] * len(layer.weight) if layer.bias is None else layer.bias.tolist()
            x = [
                max(abs(value - Fraction(w)) for value, w in zip(x, row, strict=True)) + Fraction(b)
                for row, b in zip(layer.weight.tolist(), bias, strict=True)
            ]
        elif isinstance(layer, MeanShift):
            x = [value - Fraction(mean) for value, mean in zip(x, layer.running_mean.tolist(), strict=True)]
    return x


def exact_head(head: FrozenHead, x: list[Fraction]) -> list[Fraction]:
    """Its logits, to 80 digits."""

    def linear(weight: Tensor, bias: Tensor, values: list[Fraction]) -> list[Fraction]:
        return [
            sum((Fraction(w) * value for w, value in zip(row, values, strict=True)), Fraction(b))
            for row, b in zip(weight.tolist(), bias.tolist(), strict=True)
        ]

    return linear(head.w2, head.b2, [tanh(value) for value in linear(head.w1, head.b1, x)])


def tanh(x: Fraction) -> Fraction:
    if abs(x) > 200:
        return Fraction(1 if x > 0 else -1)
    with localcontext() as context:
        context.prec = 200
        power = (2 * Decimal(x.numerator) / Decimal(x.denominator)).exp()
        return Fraction((power - 1) / (power + 1))


def dense_logits(layers: list[tuple[Tensor, Tensor]], x: Tensor) -> Tensor:
    """-y of integer layers (weight (O, I), bias (O,)) without any pruning, on x (B, I): (B, O) int64."""
    for weight, bias in layers:
        x = (x[:, None] - weight).abs().amax(2) + bias
    return -x


def reference(network: FrozenNet, images: Tensor) -> Tensor:
    """What `network(images)` must be, by definition: one image and one layer at a time, on kept entries, in int64.

    With a head, what `-network.features(images)` must be.
    """
    network.check_images(images)
    logits = []
    for x in network.stem(images).long():
        for layer in network.layers:
            distance, _ = near_far(x, x, layer.weight.long())
            x = distance.masked_fill(~layer.mask, -1).amax(1) + layer.bias
        logits.append(-x)
    width = len(network.layers[-1].bias)
    return torch.stack(logits).to(torch.int32) if logits else torch.empty(0, width, dtype=torch.int32)
