"""What a method of training is: the loss of a batch at a stage of the plan."""

from abc import ABC, abstractmethod

from torch import Tensor

from ...models import PixelNet
from ..plan import Stage


class Method(ABC):
    """(network, pixels, labels, stage) -> (loss, logits of the images as they are)."""

    name: str

    @abstractmethod
    def __call__(self, network: PixelNet, x: Tensor, y: Tensor, stage: Stage) -> tuple[Tensor, Tensor]:
        """Return the loss of pixels x (B, C, H, W) and labels y (B,), and the logits (B, classes)."""
