"""MTL-IBP (De Palma et al., ICLR 2024): the adversarial loss and that of intervals, weighed against each other."""

from torch import Tensor
from torch.nn.functional import cross_entropy

from ...models import PixelNet
from ..plan import Stage
from .adversarial import Adversarial
from .ibp import IBP


class MTLIBP(IBP):
    """(1 − α) · cross-entropy of what PGD finds + α · that of the worst case by intervals.

    `share` is α: 1 is IBP, and 0 is adversarial training.
    """

    name = "mtl-ibp"
    title = "MTL-IBP"
    source = "De Palma et al., 2024"
    settings = (
        {"lr": 1e-3, "share": 0.5, "kappa": (1.0, 0.0)},
        {"lr": 1e-3, "share": 0.2, "kappa": (1.0, 0.0)},
        {"lr": 2e-3, "share": 0.5, "kappa": (1.0, 0.0)},
    )

    def __init__(self, share: float = 0.5, steps: int = 7) -> None:
        if not 0 <= share <= 1:
            raise ValueError(f"share = {share!r}: must be between 0 and 1, the weight of the interval loss")
        self.share, self.attack = share, Adversarial(steps)

    def worst(self, network: PixelNet, x: Tensor, y: Tensor, stage: Stage) -> Tensor:
        attacked = self.attack.attacked(network, x, y, stage) if stage.eps > 0 else x
        return (1 - self.share) * cross_entropy(network(attacked), y) + self.share * super().worst(network, x, y, stage)
