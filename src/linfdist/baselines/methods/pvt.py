"""Predictor-verifier training (Dvijotham et al., 2018): a second network proposes the dual variables of the bound."""

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from ...bounds.forms import Forms, forms_of, lowest, pull_back
from ...bounds.interval import nonlinear
from ...bounds.training import Bounds
from ...models import PixelNet
from ...nn import Box
from ..plan import Stage
from .base import at_half_width
from .ibp import IBP


def by_duals(forms: Forms, duals: Tensor, box: Box) -> Forms:
    """Bound forms w of ReLUs by forms of their inputs, with any `duals` v (P, *shape) as weights.

    w max(x, 0) >= v x + min (w max(x, 0) − v x), where the minimum over a box is attained at one of its ends, or at 0.
    This is Lagrange's dual of the constraints y = max(x, 0); for linear layers, the best duals are the transpose.
    """
    lower, upper = (side[forms.row] for side in box)
    least = torch.minimum(_gap(forms.weight, duals, lower), _gap(forms.weight, duals, upper))
    least = least.where((lower > 0) | (upper < 0), least.clamp(max=0.0))
    return forms._replace(weight=duals, offset=forms.offset + least.flatten(1).sum(1))


def _gap(weight: Tensor, duals: Tensor, x: Tensor) -> Tensor:
    return weight * x.relu() - duals * x


class Verifier(nn.Module):
    """Dual variables of one layer of ReLUs from its inputs z: v = a w, with slopes a of [0, 1].

    Slopes are u e^c / (u e^c − l) on a box from l < 0 to u > 0, with numbers c that two linear maps with a ReLU between
    them find from the z of all channels at a place: one for positive weights w, another one for negative ones. They
    start at 0, which gives the parallel lines of CAP. Outside of l < 0 < u the best v is known to be w or 0.
    """

    def __init__(self, channels: int, hidden: int, generator: torch.Generator) -> None:
        super().__init__()
        start = torch.randn(hidden, channels, generator=generator) / channels**0.5
        self.inwards, self.inwards_bias = nn.Parameter(start), nn.Parameter(torch.zeros(hidden))
        self.outwards = nn.Parameter(torch.zeros(2 * channels, hidden))
        self.outwards_bias = nn.Parameter(torch.zeros(2 * channels))

    def forward(self, forms: Forms, z: Tensor, box: Box) -> Tensor:
        """The duals of forms (P, *shape) of ReLUs, for inputs z (b, *shape) with their bounds."""
        inner = nn.functional.linear(z.movedim(1, -1), self.inwards, self.inwards_bias).relu()
        found = nn.functional.linear(inner, self.outwards, self.outwards_bias).movedim(-1, 1)
        positive, negative = (_slopes(each, box)[forms.row] for each in found.chunk(2, 1))
        return torch.where(forms.weight > 0, positive, negative) * forms.weight


def _slopes(steeper: Tensor, box: Box) -> Tensor:
    lower, upper = box
    mixed = (lower < 0) & (upper > 0)
    ratio = (upper.where(mixed, 1.0) / -lower.where(mixed, -1.0)).log()
    return torch.where(mixed, (ratio + steeper).sigmoid(), (lower >= 0).to(lower.dtype))


class PVT(IBP):
    """κ · cross-entropy + (1 − κ) · that of the worst case by the verifier's duals, both networks trained on it.

    Boxes of neurons are intervals. `hidden`: hidden neurons of the verifier of each layer. The verifier is there for
    training alone: whatever it has proposed, networks are certified by bounds of their own.
    """

    name = "pvt"
    title = "PVT"
    source = "Dvijotham et al., 2018"
    settings = at_half_width(IBP.settings)
    layers_need = pull_back

    def __init__(self, hidden: int = 32) -> None:
        if hidden < 1:
            raise ValueError(f"hidden = {hidden}: must be at least 1, the hidden neurons of a verifier")
        self.hidden = hidden
        self.verifiers = nn.ModuleList()

    def start(self, network: PixelNet, stage: Stage) -> list[nn.Parameter]:
        super().start(network, stage)
        shapes, generator = network.body.shapes(network.shape), stage.generator("verifier")
        nonlinear_shapes = [shape for layer, shape in zip(network.body, shapes, strict=False) if nonlinear(layer)]
        self.verifiers = nn.ModuleList(Verifier(shape[0], self.hidden, generator) for shape in nonlinear_shapes)
        self.verifiers.to(network.any_tensor)
        return list(self.verifiers.parameters())

    def worst(self, network: PixelNet, x: Tensor, y: Tensor, stage: Stage) -> Tensor:
        return cross_entropy(-self.margins(network, x, y, stage.eps), y)

    def margins(self, network: PixelNet, x: Tensor, y: Tensor, eps: float) -> Tensor:
        """Lower bounds (B, classes) of z[y] − z[j], 0 at the label, by the duals that the verifier proposes."""
        if any(map(nonlinear, network.body)) and not self.verifiers:
            raise RuntimeError("there is no verifier yet: call start(network, stage) first, as `train` does")
        bounds, inputs = Bounds(network, x, eps), [x]
        for layer in network.body:
            inputs.append(layer(inputs[-1]))
        forms = pull_back(network.readout, forms_of(*bounds.margins(y)), bounds.boxes[-1])
        verifiers = list(self.verifiers)
        for layer, box, z in reversed(list(zip(network.body, bounds.boxes, inputs, strict=False))):
            proposed = verifiers.pop()(forms, z, box) if nonlinear(layer) else None
            forms = pull_back(layer, forms, box) if proposed is None else by_duals(forms, proposed, box)
        return lowest(forms, bounds.boxes[0]).view(len(y), -1)
