"""Training without any defence: what robustness is measured against."""

from torch import Tensor
from torch.nn.functional import cross_entropy

from ...models import PixelNet
from ..plan import Stage
from .base import Method


class Natural(Method):
    """The cross-entropy of the images as they are."""

    name = "natural"
    title = "Natural training"
    source = "cross-entropy alone"

    def __call__(self, network: PixelNet, x: Tensor, y: Tensor, stage: Stage) -> tuple[Tensor, Tensor]:
        z = network(x)
        return cross_entropy(z, y), z
