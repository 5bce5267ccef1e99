"""COLT (Balunović & Vechev, ICLR 2020): adversarial training on what lies between the layers, one after the other."""

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.nn.functional import cross_entropy

from ...bounds.interval import nonlinear
from ...bounds.zonotope import forward_zonotope
from ...models import PixelNet
from ..latent import Latent
from ..plan import Stage
from .base import Method, at_half_width

MIX = 0.3  # of a stage: how long the losses of the stage before are mixed in
STEEPER = 1.5  # the weight of stability grows so much from stage to stage
MORE = 1.05  # eps of the last stage


class COLT(Method):
    """After the warm-up, the training has as many stages as there are bends. In stage k the layers up to the k-th bend
    are frozen, PGD looks for the worst point of the zonotope there, and the layers above are trained on it; stage 0 is
    adversarial training. At first the loss of the stage before is mixed in, and eps of stage 0 grows from 0.

    steps: of PGD. count: random combinations from which bounds of neurons are estimated. growth: each stage has so many
    times the eps of the next one; the last has 1.05 · eps, and the plan's ramp has no effect. stable: weight of
    Σ max(−l, 0) max(u, 0) over the bounds of the next neurons that bend. sparse: weight of Σ|w|.
    """

    name = "colt"
    title = "COLT"
    source = "Balunović & Vechev, 2020"
    certified_by = ("box", "crown-ibp", "crown", "zonotope")
    settings = at_half_width(Method.settings)
    layers_need = forward_zonotope

    def __init__(
        self, steps: int = 8, count: int = 50, growth: float = 1.1, stable: float = 0.005, sparse: float = 1e-5
    ) -> None:
        for name, value in (("steps", steps), ("count", count), ("growth", growth)):
            if not value >= 1:
                raise ValueError(f"{name} = {value}: must be at least 1")
        for name, value in (("stable", stable), ("sparse", sparse)):
            if not value >= 0:
                raise ValueError(f"{name} = {value}: must not be negative")
        self.steps, self.count, self.growth, self.stable, self.sparse = steps, count, growth, stable, sparse

    def start(self, network: PixelNet, stage: Stage) -> list[Parameter]:
        own = super().start(network, stage)
        if not any(map(nonlinear, network.body)):
            raise TypeError(f"COLT freezes the layers below a bend, but there is no bend in {type(network).__name__}")
        return own

    def __call__(self, network: PixelNet, x: Tensor, y: Tensor, stage: Stage) -> tuple[Tensor, Tensor]:
        if stage.done == 0.0 or stage.target == 0.0:
            z = network(x)
            return cross_entropy(z, y), z
        frozen, last, mix = self.place(network, stage)
        eps = min(1.0, MORE * self.growth ** (last - frozen) * stage.target)
        if frozen == 0:
            eps *= mix  # all of a large eps at once ends in a network that gives every image the same class
        latent = Latent(network, x, eps, self.count, stage.generator("latent"))
        for _ in range(frozen):
            latent.bend()
        loss = mix * self._worst(latent, y, frozen, frozen)
        with torch.set_grad_enabled(frozen == 0):
            z = network(x)
        if mix < 1.0:
            before = cross_entropy(z, y) if frozen == 0 else self._worst(latent, y, frozen - 1, frozen)
            loss = loss + (1 - mix) * before
        if frozen < last and self.stable > 0:
            lower, upper = latent.next_bounds()
            crossing = ((-lower).relu() * upper.relu()).flatten(1).sum(1).mean()
            loss = loss + mix * self.stable * STEEPER**frozen * crossing
        trained = [*latent.layers[latent.places[frozen] :], network.readout]
        weights = [each.abs().sum() for part in trained for each in part.parameters() if each.dim() > 1]
        return loss + self.sparse * torch.stack(weights).sum(), z

    @staticmethod
    def place(network: PixelNet, stage: Stage) -> tuple[int, int, float]:
        """How many bends are frozen, how many will be at last, and the weight of this stage against the one before."""
        last = max(1, sum(map(nonlinear, network.body)) - 1)
        progress = stage.done * (last + 1)
        frozen = min(int(progress), last)
        return frozen, last, min(1.0, (progress - frozen) / MIX)

    def _worst(self, latent: Latent, y: Tensor, bends: int, frozen: int) -> Tensor:
        return cross_entropy(latent.logits(latent.attacked(y, bends, self.steps), bends, frozen), y)
