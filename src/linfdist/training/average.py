"""A running mean of the weights, which removes the noise of late updates."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn


class Average:
    """mean <- decay · mean + (1 - decay) · weights, for all weights and running means of a network."""

    def __init__(self, network: nn.Module, decay: float) -> None:
        self.network, self.decay = network, decay
        self.means: dict[str, Tensor] = {}

    def update(self) -> None:
        """Include the present weights in the mean. The first call takes them as they are."""
        for name, tensor in self.network.state_dict().items():
            if name not in self.means:
                self.means[name] = tensor.clone()
            elif tensor.is_floating_point():
                self.means[name].lerp_(tensor, 1 - self.decay)

    def apply(self) -> None:
        """Set the network to the mean, if there is one."""
        if self.means:
            self.network.load_state_dict(self.means)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Set the network to the mean, if there is one, and back to its own weights at the end."""
        own = {name: tensor.clone() for name, tensor in self.network.state_dict().items()} if self.means else {}
        self.apply()
        try:
            yield
        finally:
            if own:
                self.network.load_state_dict(own)
