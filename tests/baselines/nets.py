"""Small conventional networks: with random weights, steep enough that images differ in their classes; trained ones."""

import torch
from torch import Tensor

import linfdist as ld
from linfdist.baselines import Plan, ReLUNet, TrainingMethod, train
from linfdist.models import PixelNet


def mlp(
    seed: int, hidden: tuple[int, ...] = (9, 7), shape: tuple[int, int, int] = (1, 3, 3), gain: float = 2.0
) -> ReLUNet:
    torch.manual_seed(seed)
    return _steep(ReLUNet(shape, 4, [0.3] * shape[0], 0.31, hidden=hidden), gain)


def cnn(seed: int, gain: float = 2.0) -> ReLUNet:
    """Odd sizes: a stride that leaves a column over, padding on one layer only, and a crop."""
    torch.manual_seed(seed)
    net = ReLUNet((2, 9, 8), 5, [0.4, 0.2], 0.3, [[3, 3, 2, 1], [4, 2, 1, 0]], [11], crop=7)
    return _steep(net, gain)


def _steep(net: ReLUNet, gain: float) -> ReLUNet:
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.mul_(gain)
    return net.eval()


def pixels(net: ReLUNet, count: int, seed: int = 0) -> Tensor:
    """Multiples of 1/255."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(256, (count, *net.shape), generator=generator).float() / 255


def inside(lower: Tensor, upper: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Images of a box (1, ...): its corners at random, and points between."""
    share = torch.rand(count, *lower.shape[1:], generator=generator, dtype=lower.dtype)
    share[::2] = share[::2].round()
    return torch.minimum(torch.maximum(lower + share * (upper - lower), lower), upper)


def trained(method: TrainingMethod, lr: float) -> tuple[PixelNet, Tensor, Tensor]:
    """A small network of the method, trained on digits for a second or two for eps = 0.1; test images and labels."""
    data, test, info = (
        ld.data.load("digits", split="train"),
        ld.data.load("digits", split="test"),
        ld.data.info("digits"),
    )
    torch.manual_seed(0)
    net = method.network(info.shape, info.num_classes, info.mean, info.std, "mlp", width=0.07)
    plan = Plan(eps=0.1, epochs=8, warm_up=1, ramp=4, lr=lr, batch_size=128, kappa=(1.0, 0.3))
    train(net, data.images, data.labels, method, plan)
    return net, net.from_bytes(test.images[:100]), test.labels[:100]
