"""Small networks, some of which have learned something."""

import torch
from torch import Tensor

from linfdist.models import DistNet
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
    """Which third of an image is brightest: 30 steps at p = 8, then a look at p = inf."""
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
