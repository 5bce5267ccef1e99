"""Networks whose robust radii are known, or proved."""

import torch

from linfdist.models import DistNet


def two_classes(first: float, second: float, dtype: torch.dtype = torch.float32) -> DistNet:
    """Logits −|x − first| and −|x − second| of one pixel."""
    net = DistNet((1, 1, 1), 2, 1, 1, [0.0], 1.0).eval().to(dtype)
    with torch.no_grad():
        net.last.weight.copy_(torch.tensor([[first], [second]]))
    return net


def many_pixels(side: int = 6) -> DistNet:
    """Black or white: z_0 = −max x, z_1 = −max |x − 1|, so class 1 wins where min x + max x > 1.

    To turn a dark image into class 1 all its dark pixels must move; the gradient of p = inf moves one of them a step.
    """
    net = DistNet((1, side, side), 2, 1, 1, [0.0], 1.0).eval()
    with torch.no_grad():
        net.last.weight.copy_(torch.stack([torch.zeros(side * side), torch.ones(side * side)]))
    return net


def random_net(seed: int, width: int = 12, depth: int = 3, size: float = 1.0, classes: int = 4) -> DistNet:
    """Weights, shifts and biases of that size, for images of 3 x 3 pixels."""
    torch.manual_seed(seed)
    net = DistNet((1, 3, 3), classes, width, depth, [0.3], 0.31, identity_init=False)
    with torch.no_grad():
        for name, tensor in net.state_dict().items():
            if name.endswith(("weight", "bias", "running_mean")):
                tensor.copy_(torch.randn_like(tensor) * size)
    return net.eval()
