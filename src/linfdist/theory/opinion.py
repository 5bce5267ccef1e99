"""A second opinion on certificates: IBP and CROWN, bounds for ReLU networks, on the converted network."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ..certificates.proofs import largest_proved
from ..eps import Eps, parse_eps, round_up
from .relu import Affine, ReluNet

BOUNDS = ("ibp", "crown")
Ends = tuple[Tensor, Tensor]  # lower and upper, (n, B) each
Bounds = Callable[[ReluNet, Ends, Tensor], Ends]


@dataclass(frozen=True)
class Opinion:
    """Bounds of the margins of the predicted class over the others, for all images of a ball.

    prediction: (B,) int64. lower, upper: (B, classes) float64: z[prediction] − z[j] lies between them; both are 0 for
    the prediction itself. certified: (B,) bool: all other margins are positive. The bounds are computed in float64 and
    not rounded outwards: they may be wrong by some 10⁻¹² of the intermediate values, and by `ReluNet.error`.
    """

    prediction: Tensor
    lower: Tensor
    upper: Tensor

    @property
    def certified(self) -> Tensor:
        others = self.lower.scatter(1, self.prediction[:, None], torch.inf)
        return (others > 0).all(1)


@torch.no_grad()
def second_opinion(network: ReluNet, images: Tensor, eps: Eps, method: str = "crown") -> Opinion:
    """Bound the margins over the ball of radius eps around each image, within [0, 1]; eps on the 0–1 scale.

    method: "ibp" pushes intervals through all layers (Appendix B); "crown" bounds every neuron by linear functions of
    the pixels, back through all layers, and keeps the better of the two. The time and memory of CROWN grow with the
    square of the number of neurons: it handles thousands, not millions.
    """
    return _opinion(network, images, torch.full((len(images),), round_up(parse_eps(eps))), _bounds(method))


@torch.no_grad()
def opinion_radius(network: ReluNet, images: Tensor, method: str = "crown") -> Tensor:
    """Find the largest radius at which the method proves the prediction, on the 0–1 intensity scale: (B,) float64."""
    bounds = _bounds(method)

    def proves(rows: Tensor, eps: Tensor) -> Tensor:
        return _opinion(network, images[rows], eps.flatten().expand(len(rows)), bounds).certified

    nothing = torch.zeros(len(images), dtype=torch.float64)
    return largest_proved(proves, nothing, torch.full_like(nothing, torch.inf))


def _bounds(method: str) -> Bounds:
    if method not in BOUNDS:
        raise ValueError(f"method = {method!r}: must be one of {', '.join(BOUNDS)}")
    return _ibp if method == "ibp" else _crown


def _opinion(network: ReluNet, images: Tensor, eps: Tensor, bounds: Bounds) -> Opinion:
    logits, x = network(images), network.vectors(images).T  # (I, B)
    if not ((x >= 0) & (x <= network.white)).all():
        raise ValueError(
            f"pixels must lie in [0, {network.white}], got values from {float(x.min())!r} to {float(x.max())!r}"
        )
    prediction = logits.argmax(1)
    reach = network.white * eps.double()
    ball = ((x - reach).clamp(min=0.0), (x + reach).clamp(max=float(network.white)))
    lower, upper = bounds(network, ball, prediction)
    return Opinion(prediction, lower, upper)


def _ibp(network: ReluNet, ball: Ends, prediction: Tensor) -> Ends:
    """Push intervals through all layers; the last one is merged with the difference of two classes."""
    for layer in network.layers[:-1]:
        lower, upper = _interval(layer, ball)
        ball = lower.relu_(), upper.relu_()
    found = [_interval(_leads(network, best), _column(ball, k)) for k, best in enumerate(prediction.tolist())]
    return torch.cat([low for low, _ in found], 1).T, torch.cat([high for _, high in found], 1).T


def _crown(network: ReluNet, ball: Ends, prediction: Tensor) -> Ends:
    """Bound each layer's inputs, then the margins, by linear forms, image by image."""
    lower, upper = [], []
    for k, best in enumerate(prediction.tolist()):
        start = _column(ball, k)
        inside, done = start, list[tuple[Affine, Ends]]()
        for layer in (*network.layers[:-1], _leads(network, best)):
            low, high = _interval(layer, inside)
            for rows in ((low < 0) & (high > 0))[:, 0].nonzero()[:, 0].split(ROWS) if done else ():
                better = _linear(layer, rows, done, start)
                low[rows], high[rows] = torch.maximum(low[rows], better[0]), torch.minimum(high[rows], better[1])
            done.append((layer, (low, high)))
            inside = low.relu(), high.relu()
        every = torch.arange(network.classes)
        better = _linear(done[-1][0], every, done[:-1], start)
        low, high = done[-1][1]
        lower.append(torch.maximum(low, better[0]))
        upper.append(torch.minimum(high, better[1]))
    return torch.cat(lower, 1).T, torch.cat(upper, 1).T


ROWS = 512  # neurons whose linear bounds are computed at once


def _linear(layer: Affine, rows: Tensor, before: list[tuple[Affine, Ends]], ball: Ends) -> Ends:
    """Bound some rows (S, 1) of `layer` over a ball (I, 1), by lines around the ReLUs of the layers before.

    The coefficients are pulled back layer by layer: where they are positive, a lower bound takes the line below the
    ReLU, else the one above it.
    """
    start = layer.weight.index_select(0, rows).to_dense().T  # (n, S)
    ends = []
    for side in (1.0, -1.0):  # an upper bound is the lower bound of the negative
        a, constant = side * start, side * layer.bias[rows]
        for affine, (low, high) in reversed(before):
            unstable = (low < 0) & (high > 0)
            above = torch.where(unstable, high / (high - low).clamp_min(1e-300), (low >= 0).double())  # slopes (n, 1)
            below = torch.where(unstable, (high > -low).double(), above)
            falls = a.clamp_max(0.0)
            constant = constant + (falls * (-low * above).where(unstable, 0.0)).sum(0)
            a = a.clamp_min(0.0) * below + falls * above
            constant = constant + affine.bias @ a
            a = torch.sparse.mm(affine.transposed, a)
        ends.append(side * (constant + (a.clamp_min(0.0) * ball[0] + a.clamp_max(0.0) * ball[1]).sum(0))[:, None])
    return ends[0], ends[1]


def _interval(layer: Affine, box: Ends) -> Ends:
    """Bound weight h + bias over a box, (O, B) each: equations (ibp1) and (ibp2) of Appendix B."""
    middle, reach = layer((box[0] + box[1]) / 2), torch.sparse.mm(layer.size, (box[1] - box[0]) / 2)
    return middle - reach, middle + reach


def _leads(network: ReluNet, best: int) -> Affine:
    """Build the last layer so that it gives z[best] − z[j] in place of z[j]."""
    dense, bias = network.layers[-1].weight.to_dense(), network.layers[-1].bias
    return Affine((dense[best] - dense).to_sparse(), bias[best] - bias)


def _column(box: Ends, k: int) -> Ends:
    return box[0][:, k : k + 1], box[1][:, k : k + 1]
