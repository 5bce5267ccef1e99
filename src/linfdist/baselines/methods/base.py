"""What a method of training is: the loss of a batch at a stage of the plan, and what is compared by its name."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor
from torch.nn import Parameter

from ...eps import Eps, parse_eps
from ...models import PixelNet
from ...nn.base import Contract, Handlers
from ..networks import ReLUNet, sized
from ..plan import Plan, Stage

Settings = tuple[Mapping[str, Any], ...]


@dataclass(frozen=True)
class Span:
    """The numbers from `low` to `high` that `linfdist tune` searches; its first trial takes `first`.

    log: whether equal ratios count as equal steps. form: how a setting holds the number.
    """

    low: float
    high: float
    first: float
    log: bool = True
    form: Callable[[float], Any] = float


Space = Mapping[str, Span]  # what is searched of a method, by the key of a setting


def at_half_width(settings: Settings) -> Settings:
    """Return the same settings with networks of half the width.

    They are for methods whose steps cost ten times those of IBP or more: in the time that other methods have, these
    would hardly see each image once.
    """
    return tuple({**each, "width": 0.5} for each in settings)


class TrainingMethod(ABC):
    """A training method: (network, pixels, labels, stage) -> (loss, logits of the unperturbed images).

    title: its name in tables. source: the work it comes from. certified_by: the methods of `certify` that may certify
    its networks; if there are several, the best one for each image counts. settings: what `linfdist compare` tries, or
    only the first one if it tries one: arguments of the method, of `plan` and of `network`, by name. space: what
    `linfdist tune` searches, the rest as in the first of `settings`; empty if it searches nothing. adam: settings of
    the optimiser that differ from torch's own. kind: the class of the networks that it trains. readout_needs,
    layers_need: the bounds of the readout and of each layer that its loss uses.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    source: ClassVar[str]
    certified_by: ClassVar[tuple[str, ...]] = ("crown",)  # tries intervals and CROWN-IBP first
    settings: ClassVar[Settings] = ({"lr": 1e-3}, {"lr": 2e-3}, {"lr": 5e-4})
    space: ClassVar[Space] = {}
    adam: ClassVar[Mapping[str, Any]] = {}
    kind: ClassVar[Callable[..., PixelNet]] = ReLUNet
    readout_needs: ClassVar[Handlers[..., Any] | None] = None
    layers_need: ClassVar[Handlers[..., Any] | None] = None

    @abstractmethod
    def __call__(self, network: PixelNet, x: Tensor, y: Tensor, stage: Stage) -> tuple[Tensor, Tensor]:
        """Return the loss of pixels x (B, C, H, W) and labels y (B,), and the logits (B, classes)."""

    def start(self, network: PixelNet, stage: Stage) -> list[Parameter]:
        """Prepare to train this network from this stage on, and forget whatever was learned before.

        Returns the method's own parameters, which are trained along with those of the network. Raises TypeError if the
        network lacks bounds that the loss uses: better now than after the warm-up.
        """
        parts: list[tuple[Contract, Handlers[..., Any] | None]] = [(network.readout, self.readout_needs)]
        parts += [(layer, self.layers_need) for layer in network.body]
        refusing = [type(part).__name__ for part, needs in parts if needs is not None and part not in needs]
        if refusing:
            raise TypeError(
                f"method {self.name!r} cannot train a {type(network).__name__}: its part {refusing[0]} has none of "
                "the bounds that the loss is made of. Train a network that "
                f"TRAINING_METHODS[{self.name!r}]().network(...) makes, or take another method"
            )
        return []

    def after_step(self, network: PixelNet) -> None:  # noqa: B027 (most methods have nothing to do)
        """Project the weights to the set that the method allows, after each step of the optimiser."""

    def network(
        self,
        shape: Sequence[int],
        classes: int,
        mean: Sequence[float],
        std: float,
        size: str = "small",
        width: float = 1.0,
    ) -> PixelNet:
        """Create a new network of the kind that the method trains; `size` and `width` are those of `sized`."""
        return self.kind(shape, classes, mean, std, **self.layers(size, width))

    def layers(self, size: str, width: float) -> dict[str, Any]:
        """Return the arguments of the network's class, by name, other than those of the images and classes."""
        return sized(size, width)

    def plan(self, eps: Eps, epochs: float, reach: float = 1.0, **changes: Any) -> Plan:
        """Return the plan of the cited works, scaled to `epochs`: a warm-up of a twentieth, then a ramp of a half.

        reach: the radius to train for, in units of eps. changes: other values of the plan. Batches are small, because a
        short training has few updates.
        """
        values = {"warm_up": epochs / 20, "ramp": epochs / 2, "lr": 1e-3, "batch_size": 128, **changes}
        return Plan(min(1.0, reach * float(parse_eps(eps))), epochs, **values)
