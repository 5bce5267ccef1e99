"""SABR (Müller et al., ICLR 2023): intervals of a small box around an attacked image, and not of the whole ball."""

from dataclasses import replace

from torch import Tensor
from torch.nn.functional import cross_entropy

from ...bounds.training import Bounds
from ...models import PixelNet
from ..plan import Stage
from .adversarial import Adversarial
from .ibp import IBP


class SABR(IBP):
    """IBP over the box of radius λε around an image that PGD has found within (1 − λ) ε, so that it is in the ball.

    `share` is λ: 1 is IBP, and near 0 it is adversarial training. The box leaves out most of the ball, so that this is
    no bound of the worst case: networks become easier to train, and are certified by linear bounds, or not at all.
    """

    name = "sabr"
    title = "SABR"
    source = "Müller et al., 2023"
    settings = (
        {"lr": 1e-3, "share": 0.6, "kappa": (1.0, 0.0)},
        {"lr": 1e-3, "share": 0.4, "kappa": (1.0, 0.0)},
        {"lr": 2e-3, "share": 0.6, "kappa": (1.0, 0.0)},
    )

    def __init__(self, share: float = 0.4, steps: int = 7) -> None:
        if not 0 < share <= 1:
            raise ValueError(f"share = {share!r}: must be more than 0 and at most 1, the part of eps that boxes have")
        self.share, self.attack = share, Adversarial(steps)

    def worst(self, network: PixelNet, x: Tensor, y: Tensor, stage: Stage) -> Tensor:
        centre = self.centre(network, x, y, stage)
        return cross_entropy(-Bounds(network, centre, self.share * stage.eps).interval_margins(y), y)

    def centre(self, network: PixelNet, x: Tensor, y: Tensor, stage: Stage) -> Tensor:
        """The middle of each box."""
        reach = (1 - self.share) * stage.eps
        return self.attack.attacked(network, x, y, replace(stage, eps=reach)) if reach > 0 else x
