"""A function of several numbers as a dist net, and as a classifier that says on which side of a threshold it is."""

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from ..models import DistNet
from ..nn import DistLinear, Normalize, Stack
from .domain import Domain
from .maps import enough


@dataclass(frozen=True, eq=False)
class DistFunction:
    """g(x) by dist layers alone, from points (B, d) to one number each: 1-Lipschitz in ℓ∞, whatever its weights.

    layers: `DistLinear` layers with biases, the last with one neuron; domain: where g is meant to be used; bound: no
    |g(x)| is larger there.
    """

    layers: Stack
    domain: Domain
    bound: float

    @property
    def width(self) -> int:
        """Neurons of the widest layer."""
        return max(layer.out_features for layer in self._dist)

    @property
    def depth(self) -> int:
        """Dist layers, the last one included."""
        return len(self._dist)

    @property
    def dtype(self) -> torch.dtype:
        return self._dist[0].weight.dtype

    @torch.no_grad()
    def __call__(self, x: Tensor) -> Tensor:
        """Compute g of points (B, d) of the domain: (B,), in the precision of the layers."""
        self.domain.check(x)
        return self.layers(x.to(self.dtype))[:, 0]

    def images(self, x: Tensor) -> Tensor:
        """Turn points (B, d) of the domain into the images (B, d, 1, 1) that `classifier` takes."""
        self.domain.check(x)
        corner = torch.tensor(self.domain.lower, dtype=torch.float64)
        pixels = (x.double() - corner) / self.domain.side
        return pixels.clamp(0.0, 1.0).to(self.dtype)[:, :, None, None]

    @torch.no_grad()
    def classifier(self, threshold: float = 0.0) -> DistNet:
        """Build a network of two classes: class 1 where g(x) > threshold, class 0 where it is smaller.

        Its logits are (threshold − g, g − threshold): a dist net has both signs, by the projection and the negation of
        Proposition A.2. So the margin is 2 |g − threshold|, and the certified radius |g(x) − threshold|, in units of
        the domain: `certify` gives it in pixels, and one pixel is domain.side. It is an ordinary `DistNet` for images
        (d, 1, 1), see `Domain`, so it can be certified, attacked, frozen, exported and saved like any other.
        """
        hidden, width, inputs = self._dist, self.width, self.domain.inputs
        side = self.domain.side
        mean = [-low / side for low in self.domain.lower]
        with torch.device("meta"):  # no random weights are drawn
            network = DistNet(
                (inputs, 1, 1), 2, width, len(hidden) + 1, mean, 1 / side, identity_init=False, mean_shift=False
            ).to(self.dtype)
        network = network.to_empty(device="cpu").eval()
        normalize, _, *layers = network.body
        assert isinstance(normalize, Normalize)
        normalize.mean.copy_(torch.tensor(mean, dtype=torch.float64)[:, None, None])
        normalize.std.copy_(torch.tensor(1 / side, dtype=torch.float64))
        for own, layer in zip(layers, hidden, strict=True):
            assert isinstance(own, DistLinear)
            assert own.bias is not None
            assert layer.bias is not None
            copies = torch.arange(width) % layer.out_features  # of g itself, in the last one
            own.weight.copy_(layer.weight[copies])
            own.bias.copy_(layer.bias[copies])
        constant = enough(max(self.bound, abs(threshold)))
        network.last.weight.copy_(torch.tensor([[-constant], [constant]]).expand(2, width))
        network.last.bias.copy_(torch.tensor([-threshold - constant, threshold - constant], dtype=torch.float64))
        return network

    @property
    def _dist(self) -> list[DistLinear]:
        return [cast(DistLinear, layer) for layer in self.layers]
