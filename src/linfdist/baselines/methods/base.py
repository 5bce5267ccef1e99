"""What a method of training is: the loss of a batch at a stage of the plan, and what is compared by its name."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from torch import Tensor, nn

from ...models import PixelNet
from ..networks import ReLUNet, sized
from ..plan import Stage


class Method(ABC):
    """(network, pixels, labels, stage) -> (loss, logits of the images as they are).

    title: what tables call it. source: the work it comes from. certified_by: the methods of `certify` that may prove
    something of its networks; of several, the best one for each image counts. adam: settings of the optimiser, where
    they are not torch's own.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    source: ClassVar[str]
    certified_by: ClassVar[tuple[str, ...]] = ("box", "crown-ibp", "crown")

    adam: ClassVar[Mapping[str, Any]] = {}

    def begin(self) -> list[nn.Parameter]:
        """What is trained besides the network, made anew for each training: nothing for most methods."""
        return []

    @abstractmethod
    def __call__(self, network: PixelNet, x: Tensor, y: Tensor, stage: Stage) -> tuple[Tensor, Tensor]:
        """Return the loss of pixels x (B, C, H, W) and labels y (B,), and the logits (B, classes)."""

    def network(
        self,
        shape: Sequence[int],
        classes: int,
        mean: Sequence[float],
        std: float,
        size: str = "small",
        width: float = 1.0,
    ) -> PixelNet:
        """A fresh network of the kind that the method trains: `size` and `width` are those of `sized`."""
        return ReLUNet(shape, classes, mean, std, **sized(size, width))
