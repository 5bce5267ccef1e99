"""Training on linear relaxations: dual bounds (CAP, PVT), and latent attacks (COLT)."""

from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import Parameter
from torch.nn.functional import cross_entropy

from ...bounds.forms import Forms, forms_of, lowest, pull_back
from ...bounds.interval import nonlinear
from ...bounds.training import Bounds
from ...bounds.zonotope import forward_zonotope
from ...models import PixelNet
from ...nn import Box
from ..latent import Latent, by_parallel_lines
from ..plan import Stage
from .base import TrainingMethod, at_half_width
from .interval import WorstCase


class CAP(TrainingMethod):
    """The cross-entropy of the worst case that parallel lines around each ReLU allow for, and nothing else; ε grows.

    The margins are those of Fast-Lin: differences of logits, pulled back to the pixels. `draws`: how many random
    projections estimate the boxes of the neurons. With draws = 0 the boxes are computed, not estimated, at the cost of
    one linear form for each neuron.
    """

    name = "cap"
    title = "CAP"
    source = "Wong & Kolter, 2018"
    certified_by = ("box", "crown", "fast-lin")
    settings = at_half_width(TrainingMethod.settings)
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
        """Compute the cross-entropy of the lowest margins over the balls, averaged over the batch."""
        boxes = partial(by_parallel_lines, draws=self.draws, generator=stage.generator("projections"))
        return cross_entropy(-Bounds(network, x, stage.eps, boxes, parallel=True).linear_margins(y), y)


def by_duals(forms: Forms, duals: Tensor, box: Box) -> Forms:
    """Bound forms w of ReLUs from below by forms of their inputs, with any `duals` v (P, *shape) as weights.

    w max(x, 0) >= v x + min (w max(x, 0) − v x), where the minimum over a box is attained at one of its ends, or at 0.
    This is the Lagrangian dual of the constraints y = max(x, 0); for linear layers, the best duals are the transpose.
    """
    lower, upper = (side[forms.row] for side in box)
    least = torch.minimum(_gap(forms.weight, duals, lower), _gap(forms.weight, duals, upper))
    least = least.where((lower > 0) | (upper < 0), least.clamp(max=0.0))
    return forms._replace(weight=duals, offset=forms.offset + least.flatten(1).sum(1))


def _gap(weight: Tensor, duals: Tensor, x: Tensor) -> Tensor:
    return weight * x.relu() - duals * x


class Verifier(nn.Module):
    """Predicts the dual variables of one layer of ReLUs from its inputs z: v = a w, with slopes a of [0, 1].

    Slopes are u e^c / (u e^c − l) on a box from l < 0 to u > 0. Two linear maps with a ReLU between them compute c from
    the z of all channels at a place: one c for positive weights w, another one for negative ones. All c start at 0,
    which gives the parallel lines of CAP. Outside l < 0 < u the best v is known to be w or 0.
    """

    def __init__(self, channels: int, hidden: int, generator: torch.Generator) -> None:
        super().__init__()
        start = torch.randn(hidden, channels, generator=generator) / channels**0.5
        self.inwards, self.inwards_bias = nn.Parameter(start), nn.Parameter(torch.zeros(hidden))
        self.outwards = nn.Parameter(torch.zeros(2 * channels, hidden))
        self.outwards_bias = nn.Parameter(torch.zeros(2 * channels))

    def forward(self, forms: Forms, z: Tensor, box: Box) -> Tensor:
        """Return the duals of forms (P, *shape) of ReLUs, for inputs z (b, *shape) with their bounds."""
        inner = nn.functional.linear(z.movedim(1, -1), self.inwards, self.inwards_bias).relu()
        found = nn.functional.linear(inner, self.outwards, self.outwards_bias).movedim(-1, 1)
        positive, negative = (_slopes(each, box)[forms.row] for each in found.chunk(2, 1))
        return torch.where(forms.weight > 0, positive, negative) * forms.weight


def _slopes(steeper: Tensor, box: Box) -> Tensor:
    lower, upper = box
    mixed = (lower < 0) & (upper > 0)
    ratio = (upper.where(mixed, 1.0) / -lower.where(mixed, -1.0)).log()
    return torch.where(mixed, (ratio + steeper).sigmoid(), (lower >= 0).to(lower.dtype))


class PVT(WorstCase):
    """κ · cross-entropy + (1 − κ) · that of the worst case by the verifier's duals; both networks are trained on it.

    Boxes of neurons are intervals. `hidden`: hidden neurons of the verifier of each layer. The verifier serves training
    alone: certificates do not use its duals.
    """

    name = "pvt"
    title = "PVT"
    source = "Dvijotham et al., 2018"
    settings = at_half_width(WorstCase.settings)
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
        """Bound z[y] − z[j] from below (B, classes) by the duals that the verifier proposes; 0 at the label."""
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


MIX = 0.3  # share of a stage during which the loss of the stage before is mixed in
STEEPER = 1.5  # factor by which the weight of stability grows from stage to stage
MORE = 1.05  # eps of the last stage, in units of the target


class COLT(TrainingMethod):
    """Adversarial training in the latent space, one nonlinear layer after another.

    After the warm-up, the training has as many stages as there are nonlinear layers. In stage k the layers up to the
    k-th nonlinear one are frozen, PGD looks for the worst point of the zonotope there, and the layers above are trained
    on it; stage 0 is adversarial training. At first the loss of the stage before is mixed in, and eps of stage 0 grows
    from 0.

    steps: of PGD. count: random combinations from which bounds of neurons are estimated. growth: the eps of a stage is
    `growth` times that of the next one; the last has 1.05 · eps, and the plan's ramp has no effect. stable: weight of
    Σ max(−l, 0) max(u, 0) over the bounds of the next nonlinear neurons. sparse: weight of Σ|w|.
    """

    name = "colt"
    title = "COLT"
    source = "Balunović & Vechev, 2020"
    certified_by = ("box", "crown-ibp", "crown", "zonotope")
    settings = at_half_width(TrainingMethod.settings)
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
            raise TypeError(
                f"COLT freezes the layers below a nonlinear layer, but a {type(network).__name__} has none: "
                "take another method"
            )
        return own

    def __call__(self, network: PixelNet, x: Tensor, y: Tensor, stage: Stage) -> tuple[Tensor, Tensor]:
        if stage.done == 0.0 or stage.target == 0.0:
            z = network(x)
            return cross_entropy(z, y), z
        frozen, last, mix = self.place(network, stage)
        eps = min(1.0, MORE * self.growth ** (last - frozen) * stage.target)
        if frozen == 0:
            eps *= mix  # a large eps from the start ends in a network that gives every image the same class
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
        """Return how many nonlinear layers are frozen now and in the last stage, and the weight of this stage's loss.

        The loss of the stage before has the rest of the weight.
        """
        last = max(1, sum(map(nonlinear, network.body)) - 1)
        progress = stage.done * (last + 1)
        frozen = min(int(progress), last)
        return frozen, last, min(1.0, (progress - frozen) / MIX)

    def _worst(self, latent: Latent, y: Tensor, bends: int, frozen: int) -> Tensor:
        return cross_entropy(latent.logits(latent.attacked(y, bends, self.steps), bends, frozen), y)
