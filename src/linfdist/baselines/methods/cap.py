"""CAP, convex adversarial polytope (Wong & Kolter, ICML 2018; Wong et al., NeurIPS 2018): training on a dual bound."""

from functools import partial

from torch import Tensor
from torch.nn.functional import cross_entropy

from ...bounds.forms import pull_back
from ...bounds.training import Bounds
from ...models import PixelNet
from ..parallel import by_parallel_lines
from ..plan import Stage
from .base import Method, at_half_width


class CAP(Method):
    """The cross-entropy of the worst case that parallel lines around each ReLU allow for, and nothing else; ε grows.

    The margins are those of Fast-Lin: differences of logits, pulled back to the pixels. `draws`: how many random
    projections estimate the boxes of the neurons; 0: no estimate, but the boxes themselves, at the cost of one linear
    form for each neuron.
    """

    name = "cap"
    title = "CAP"
    source = "Wong & Kolter, 2018"
    certified_by = ("box", "crown", "fast-lin")
    settings = at_half_width(Method.settings)
    readout_needs = pull_back
    layers_need = pull_back

    def __init__(self, draws: int = 32) -> None:
        if draws < 0:
            raise ValueError(f"draws = {draws}: must be at least 1, or 0 for boxes without an estimate")
        self.draws = draws

    def __call__(self, network: PixelNet, x: Tensor, y: Tensor, stage: Stage) -> tuple[Tensor, Tensor]:
        z = network(x)
        return (self.worst(network, x, y, stage) if stage.eps > 0 else cross_entropy(z, y)), z

    def worst(self, network: PixelNet, x: Tensor, y: Tensor, stage: Stage) -> Tensor:
        """The cross-entropy of the lowest margins over the balls, averaged over the batch."""
        boxes = partial(by_parallel_lines, draws=self.draws, generator=stage.generator("projections"))
        return cross_entropy(-Bounds(network, x, stage.eps, boxes, parallel=True).linear_margins(y), y)
