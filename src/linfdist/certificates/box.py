"""The ε-ball as a box of floats, pushed through the layers: bounds of the network as executed."""

import torch
from torch import Tensor

from ..models import DistNet, PixelNet
from ..nn import Box
from .chunks import rows_at_once
from .head_bounds import HeadBounds
from .proof import Proof


def ball(x: Tensor, eps: Tensor) -> Box:
    """A box that holds every image x′ of [0, 1], in x's precision, with |x′ − x| <= eps in exact arithmetic.

    x float32 or float64 in [0, 1]; eps float64 >= 0, broadcastable to x. Only eps must be rounded up to x's precision:
    x′ <= x + eps is a float, and rounding keeps the order, so x′ is at most the rounded sum as well.
    """
    near = eps.to(x.dtype)
    reach = torch.where(near < eps, torch.nextafter(near, torch.full_like(near, torch.inf)), near)
    return Box((x - reach).clamp_(0.0, 1.0), (x + reach).clamp_(0.0, 1.0))


class PlainBox(Proof):
    """Dist layers as intervals up to the logits."""

    def __init__(self, network: DistNet, x: Tensor, prediction: Tensor) -> None:
        super().__init__(prediction)
        self.network, self.x = network, x

    def proves(self, rows: Tensor, eps: Tensor) -> Tensor:
        few = rows_at_once(self.network)
        parts = rows.split(few)
        radii = eps.split(few) if len(eps) > 1 else [eps] * len(parts)
        return torch.cat([self._proves(*pair) for pair in zip(parts, radii, strict=True)])

    def _proves(self, rows: Tensor, eps: Tensor) -> Tensor:
        box = self.network.forward_box(ball(self.x[rows], eps))  # (b, classes) each
        best = self.prediction[rows, None]
        lowest = box.lower.gather(1, best)
        others = box.upper.scatter(1, best, -torch.inf)
        finite = (box.lower.isfinite() & box.upper.isfinite()).all(1)
        return (lowest > others).all(1) & finite


class HeadBox(Proof):
    """Dist layers up to the features as intervals, then the head's bounds."""

    def __init__(self, network: PixelNet, x: Tensor, prediction: Tensor, head: HeadBounds) -> None:
        super().__init__(prediction)
        self.network, self.x, self.head = network, x, head

    def proves(self, rows: Tensor, eps: Tensor) -> Tensor:
        box = self.network.features_box(ball(self.x[rows], eps))  # (b, F) each
        return self.head.proves(Box(box.lower.double(), box.upper.double()), self.prediction[rows])
