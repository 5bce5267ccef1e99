"""Small networks, some of which have learned something."""

from collections.abc import Iterable, Iterator
from copy import deepcopy
from functools import cache, lru_cache
from itertools import product

import torch
from torch import Tensor

from linfdist.certificates import certify
from linfdist.models import ConvDistNetMLP, DistNet, DistNetMLP, PixelNet
from linfdist.ops.adam import adam_step
from linfdist.training.losses import hinge_loss


def random_net(seed: int, width: int = 7, depth: int = 4, size: float = 1.0, mean_shift: bool = True) -> DistNet:
    """Weights of that size, and shifts and biases of its order."""
    torch.manual_seed(seed)
    net = DistNet((1, 3, 3), 4, width, depth, [0.3], 0.31, identity_init=width >= 9, mean_shift=mean_shift)
    with torch.no_grad():
        for name, tensor in net.state_dict().items():
            if name.endswith("weight"):
                tensor.mul_(size)
            elif name.endswith(("bias", "running_mean")):
                tensor.copy_(torch.randn_like(tensor) * size)
    return net.eval()


def images(count: int, seed: int = 0) -> Tensor:
    """Multiples of 1/255."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(256, (count, 1, 3, 3), generator=generator).float() / 255


def trained_net() -> tuple[DistNet, Tensor]:
    """A network of one's own that knows which third of an image is brightest, and its training images."""
    net, x = _trained_once()
    return deepcopy(net), x


@cache
def _trained_once() -> tuple[DistNet, Tensor]:
    """30 steps at p = 8, then 30 at p = inf."""
    net = random_net(1, width=24, depth=3).train()
    x = images(256, seed=5)
    y = x.mean(3).argmax(2)[:, 0]
    moments = {name: (torch.zeros_like(p), torch.zeros_like(p)) for name, p in net.named_parameters()}
    for step in range(1, 61):
        net.zero_grad()
        hinge_loss(net(x, 8.0 if step < 30 else float("inf")), y, 1.0).backward()
        for name, p in net.named_parameters():
            with torch.no_grad():
                adam_step(p, p.grad, *moments[name], lr=0.02, betas=(0.9, 0.99), eps=1e-10, decay=0.0, p=2.0, step=step)
    return net.eval(), x


def head_net(seed: int, gain: float = 6.0, conv: bool = False, head: int = 12) -> DistNetMLP | ConvDistNetMLP:
    """Random weights, shifts as after training, and a head steep enough that images differ in their classes."""
    return deepcopy(_head_net_once(seed, gain, conv, head))


@lru_cache(maxsize=8)
def _head_net_once(seed: int, gain: float, conv: bool, head: int) -> DistNetMLP | ConvDistNetMLP:
    torch.manual_seed(seed)
    if conv:
        net: DistNetMLP | ConvDistNetMLP = ConvDistNetMLP((1, 3, 3), 4, 3, 4, [0.3], 0.31, head=head)
    else:
        net = DistNetMLP((1, 3, 3), 4, 16, 2, [0.3], 0.31, head=head)
    net.train()
    for _ in range(60):
        net(images(64, seed=9))  # moves the running means
    with torch.no_grad():
        net.head.hidden.weight.mul_(gain)
        net.head.hidden.bias.normal_()
        net.head.output.bias.normal_(std=0.1)
    return net.eval()


def two_classes(first: float, second: float) -> DistNet:
    """Logits −|x − first| and −|x − second| of one pixel."""
    net = DistNet((1, 1, 1), 2, 1, 1, [0.0], 1.0).eval()
    with torch.no_grad():
        net.last.weight.copy_(torch.tensor([[first], [second]]))
    return net


def as_far_as(x: Tensor, direction: Tensor, radius: Tensor) -> Tensor:
    """x moved along signs by `radius` (B,): as far as floats allow and not a bit further, in exact arithmetic."""
    reach = radius.double()[:, None, None, None]
    moved = (x.double() + direction.sign() * reach).clamp(0, 1).to(x.dtype)
    for _ in range(2):
        too_far = (moved.double() - x.double()).abs() > reach  # exact: pixels of float32, differences in float64
        moved = torch.where(too_far, torch.nextafter(moved, x), moved)
    return moved


def corners(x: Tensor, radius: Tensor) -> Iterator[Tensor]:
    """All 2^9 corners of the balls around 3x3 images."""
    for bits in product((-1.0, 1.0), repeat=9):
        yield as_far_as(x, torch.tensor(bits).view(1, 1, 3, 3).expand_as(x), radius)


def attacks(net: PixelNet, x: Tensor, radius: Tensor, tries: int = 12) -> Iterator[Tensor]:
    """Images within the balls: towards every other class by the gradients of two p, random corners, random insides."""
    best = net(x).argmax(1, keepdim=True)
    for p in (8.0, 60.0):
        for other in range(net(x[:1]).shape[1]):
            start = x.clone().requires_grad_()
            z = net(start, p)
            (z[:, other] - z.gather(1, best)[:, 0]).sum().backward()
            yield as_far_as(x, start.grad, radius)
    for _ in range(tries):
        direction = torch.randn_like(x)
        yield as_far_as(x, direction, radius)
        yield as_far_as(x, direction, radius * torch.rand_like(radius))


def count_flips(net: PixelNet, x: Tensor, near: Iterable[Tensor]) -> int:
    """Images whose class changes for some of the images near them."""
    prediction = net(x).argmax(1)
    flipped = torch.zeros(len(x), dtype=torch.bool)
    for moved in near:
        flipped |= net(moved).argmax(1) != prediction
    return int(flipped.sum())


def margin(network, x, eps=None):
    """What the margin proves."""
    return certify(network, x, eps, method="margin")
