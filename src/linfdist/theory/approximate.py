"""Theorem 4.1: a dist net of width d + 2 comes as close as wanted to any 1-Lipschitz function."""

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from ..nn import Stack
from .domain import Domain, Intervals
from .envelopes import check_lipschitz, room
from .function import DistFunction
from .maps import Unit, enough, layer, maximum, negation, projection

MOST = 10_000  # pyramids; each of them is two layers


def approximate(
    f: Callable[[Tensor], Tensor], domain: Intervals, eps: float, dtype: torch.dtype = torch.float32
) -> DistFunction:
    """Build a dist net g of width d + 2 with |g(x) − f(x)| <= eps for all x of the domain, rounding included.

    f: from points (N, d) float64 to values (N,), 1-Lipschitz in ℓ∞. domain: one interval (low, high) for each of the d
    inputs. eps > 0. dtype: of the network's weights, float32 or float64.

    The "max of pyramids" of Appendix A: the domain is cut into cells of side 2 eps, and

        g(x) = max_i f(w[i]) − ‖x − w[i]‖∞, + eps,    w[i] the centres of the cells.

    f(x) lies between that maximum and the maximum + 2 eps, because x is within eps of a centre and f changes by no more
    than x does. Every layer has d neurons that carry x, one for the distance to the current centre, and one for the
    maximum so far. A pyramid takes two layers, so the network has two layers for each cell, and one more.

    f is evaluated at the centres and corners of the cells. Raises ValueError if it changes too fast between any two of
    these; between them its Lipschitz constant is trusted.
    """
    box = Domain.of(domain)
    if isinstance(eps, bool) or not isinstance(eps, int | float) or not (math.isfinite(eps) and eps > 0):
        raise ValueError(f"eps = {eps!r}: must be a positive number, the largest error that is allowed")
    if dtype not in (torch.float32, torch.float64):
        raise TypeError(f"dtype = {dtype}: must be torch.float32 or torch.float64")
    _check_count(box, eps)
    probes = box.centres(eps)[0]
    largest = float(_values(f, probes).abs().max()) + eps  # no other point is further than eps from one of them
    bound = 3 * box.size + largest + 2 * eps  # of everything that is computed, and of every offset
    constant = enough(bound)
    quantum = constant * torch.finfo(dtype).eps  # of all values: see `enough`
    reach = eps - 4 * quantum  # x, the centres and the values at them are each rounded to a quantum
    if reach < eps / 2:
        wider = "take a larger one" if dtype == torch.float64 else "take a larger one, or dtype=torch.float64"
        raise ValueError(f"eps = {eps!r}: is too small for {dtype}, which rounds by {quantum:.3g} here; {wider}")
    _check_count(box, reach)
    centres, corners = box.centres(reach)
    centres = (centres / quantum).round() * quantum
    points = torch.cat([centres, corners, probes])
    values = _values(f, points)
    check_lipschitz(points, values.double(), room(points, values))
    heights = (values[: len(centres)].double() / quantum).round() * quantum
    lift = round(reach / quantum) * quantum
    layers = [layer(units, inputs, constant, dtype) for units, inputs in _units(centres, heights, lift)]
    return DistFunction(Stack(*layers).eval(), box, bound)


def _units(centres: Tensor, heights: Tensor, lift: float) -> Iterator[tuple[list[Unit], int]]:
    """Yield the neurons of each layer, and how many inputs they have.

    Neurons 0 ... d − 1 carry x. Neuron d is max_j x[j] − w[j] in one layer, and with w[j] − x[j] as well it is ‖x − w‖∞
    in the next. Neuron d + 1 is the maximum of the pyramids so far: it takes in one pyramid while neuron d starts the
    next.
    """
    inputs = centres.shape[1]
    distance, best = inputs, inputs + 1
    carry = [projection(j) for j in range(inputs)]
    take_in = projection(0)  # there is no pyramid yet: any value will do
    width = inputs
    for number, (centre, height) in enumerate(zip(centres.tolist(), heights.tolist(), strict=True)):
        above = Unit({j: (1, -w) for j, w in enumerate(centre)})
        yield [*carry, above, take_in], width
        width = inputs + 2
        below = Unit({distance: (1, 0.0), **{j: (-1, w) for j, w in enumerate(centre)}})
        yield [*carry, below, projection(best)], width
        take_in = maximum(distance, best, offset=height, sign=-1) if number else negation(distance, height)
    yield [Unit(take_in.terms, take_in.shift + lift)], width


def _check_count(box: Domain, reach: float) -> None:
    cells = box.cells(reach)
    if math.prod(cells) > MOST:
        raise ValueError(
            f"eps = {reach:.6g}: takes {' x '.join(map(str, cells))} = {math.prod(cells):,} pyramids, two layers for "
            f"each, and {MOST:,} are allowed; take a larger eps or a smaller domain"
        )


def _values(f: Callable[[Tensor], Tensor], points: Tensor) -> Tensor:
    """Evaluate f at points (N, d) without gradients; raise TypeError or ValueError for invalid values."""
    with torch.no_grad():
        values = f(points.clone())
    if not isinstance(values, Tensor):
        raise TypeError(f"f must return a tensor (N,), one value for each point, got {type(values).__name__}")
    if values.shape != points.shape[:1]:
        raise ValueError(f"f must return one value for each point, ({len(points)},), got {tuple(values.shape)}")
    wrong = ~values.isfinite()
    if wrong.any():
        place = int(wrong.nonzero()[0])
        raise ValueError(f"f is {values[place].item()} at {points[place].tolist()}: it must be finite on the domain")
    return values
