"""Estimates of zonotopes for training: boxes of neurons, and attacks on the values between two layers (latent PGD).

The zonotope (DeepZ) is never written out. A point of it is given by error coefficients, one for each pixel and one for
each nonlinear neuron on the way. It goes through the layers like an image, with bands in place of the nonlinearities.
Bounds of neurons are estimated from Cauchy random projections of the generators (Li et al., 2007): sums with
independent Cauchy coefficients have a median magnitude of Σ|generators|. An estimate proves nothing: it is for training
alone.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from ..bounds.interval import bare_ball, bare_box, nonlinear, relaxation
from ..bounds.zonotope import Zonotope, forward_zonotope
from ..models import PixelNet
from ..nn import Box, LipschitzModule, Stack

LARGEST = 1e6  # limit of the weights: the median, the only statistic used, does not depend on it


def cauchy(shape: Sequence[int], generator: torch.Generator | None, like: Tensor) -> Tensor:
    """Draw independent weights from a Cauchy distribution: the median of |Σ weights · numbers| is Σ |numbers|.

    They are tangents of random angles, which is four times as fast as `Tensor.cauchy_`.
    """
    angles = torch.rand(*shape, generator=generator).sub_(0.5).mul_(math.pi)
    return angles.tan_().clamp_(-LARGEST, LARGEST).to(like)


def by_parallel_lines(body: Stack, pixels: Box, draws: int = 0, generator: torch.Generator | None = None) -> list[Box]:
    """Bound the inputs of all layers, and the features; those of ReLUs by the dual bound of Wong & Kolter (2018).

    Between parallel lines, a ReLU is y = s x + t/2 ± t/2, with the slope s and the height t of its band. So every value
    is linear in as many unknowns of [−1, 1] as there are pixels and ReLUs so far, and the half width of its box is the
    ℓ1 norm of its coefficients.

    draws = 0: the coefficients are stored one by one; that is for small networks. draws > 0: only `draws` sums of them
    are stored, with random weights from a Cauchy distribution. The median of their absolute values estimates the norm
    (Wong et al., 2018), whatever the number of unknowns is, but the estimate may be too small. All images share the
    draws.

    The box of the first ReLU is that of intervals, which is exact; boxes of other layers follow by intervals too.
    """
    found, seen = [pixels], False
    middle, reach = (pixels.lower + pixels.upper) / 2, (pixels.upper - pixels.lower) / 2
    unknowns = _unknowns(reach, draws, generator)
    for layer in body:
        if nonlinear(layer):
            if seen:
                size = unknowns.abs()
                norm = size.movedim(1, -1).median(-1).values if draws else size.sum(1)
                found[-1] = Box(middle - norm, middle + norm)
            slope, height = relaxation(layer, found[-1])
            middle, seen = slope * middle + height / 2, True
            unknowns, fresh = slope[:, None] * unknowns, _unknowns(height / 2, draws, generator)
            unknowns = unknowns + fresh if draws else torch.cat([unknowns, fresh], 1)
        else:
            still = layer(torch.zeros_like(middle[:1]))  # the layer is affine: the rest is its linear part
            middle = layer(middle)
            unknowns = (layer(unknowns.flatten(0, 1)) - still).unflatten(0, unknowns.shape[:2])
        found.append(bare_box(layer, found[-1]))
    return found


def _unknowns(reach: Tensor, draws: int, generator: torch.Generator | None) -> Tensor:
    """Return coefficients (B, unknowns, *shape), one unknown for each of reach (B, *shape), or `draws` sums of them."""
    if not draws:
        return torch.diag_embed(reach.flatten(1)).unflatten(2, reach.shape[1:])
    return cauchy((draws, *reach.shape[1:]), generator, reach) * reach[:, None]


STEP = 0.25  # step size of an attack, in error coefficients


class Latent:
    """The zonotopes of a batch of balls, pushed through a network one nonlinear layer at a time, as far as needed."""

    def __init__(self, network: PixelNet, x: Tensor, eps: float, count: int, generator: torch.Generator) -> None:
        """Start from the ball of radius eps around each image of x (B, C, H, W), within [0, 1].

        count: the number of random combinations of generators.
        """
        self.network, self.generator, self.count = network, generator, count
        self.layers = list(network.body)
        self.places = [
            0,
            *(place + 1 for place, layer in enumerate(self.layers) if nonlinear(layer)),
        ]  # the index of the layer after each nonlinear layer
        self.box = bare_ball(x, eps)
        self.centre, self.reach = (self.box.upper + self.box.lower) / 2, (self.box.upper - self.box.lower) / 2
        self.bands: list[tuple[Tensor, Tensor]] = []
        none = x.new_empty(len(x), 0, *x.shape[1:])
        self.zonotope = Zonotope(self.centre, none, torch.zeros_like(x), count)  # its generators are combinations

    def next_bounds(self) -> Box:
        """Estimate bounds of the inputs of the next nonlinear layer; at the first one, they are exact."""
        return self._bounds(self._pushed()) if self.bands else self._intervals()

    @torch.no_grad()
    def bend(self) -> None:
        """Push the zonotopes to the next nonlinear layer and through it."""
        if not self.bands:  # only now: these draws are unused if no layer is frozen
            self.zonotope = self.zonotope._replace(generators=self.reach[:, None] * self._combinations(self.reach))
        pushed, layer = self._pushed(), self.layers[self.places[len(self.bands) + 1] - 1]
        box = self._bounds(pushed)
        slope, height = relaxation(layer, box)
        generators = slope[:, None] * pushed.generators + (height / 2)[:, None] * self._combinations(height)
        self.zonotope = pushed._replace(centre=slope * pushed.centre + height / 2, generators=generators)
        self.box = bare_box(layer, box)
        self.bands.append((slope, height))

    def _between(self) -> list[LipschitzModule]:
        """Return the layers before the next nonlinear one."""
        return self.layers[self.places[len(self.bands)] : self.places[len(self.bands) + 1] - 1]

    def _pushed(self) -> Zonotope:
        """Push the zonotopes to the inputs of the next nonlinear layer."""
        zonotope, box = self.zonotope, self.box
        for layer in self._between():
            zonotope, box = forward_zonotope(layer, zonotope, box), bare_box(layer, box)
        return zonotope

    def _intervals(self) -> Box:
        """Bound the inputs of the next nonlinear layer by intervals."""
        box = self.box
        for layer in self._between():
            box = bare_box(layer, box)
        return box

    def _bounds(self, pushed: Zonotope) -> Box:
        """Bound the inputs of the next nonlinear layer by intervals, cut down to the zonotopes' estimated reach."""
        box = self._intervals()
        if not self.bands:
            return box
        reach = pushed.generators.abs().median(dim=1).values
        lower, upper = pushed.centre - reach, pushed.centre + reach
        return Box(torch.maximum(box.lower, lower), torch.minimum(box.upper, upper))

    def point(self, errors: list[Tensor]) -> Tensor:
        """Return the points with these coefficients in [−1, 1].

        errors: the coefficients of the pixels, then those of the first len(errors) − 1 nonlinear layers.
        """
        point = self.centre + self.reach * errors[0]
        for place, layer in enumerate(self.layers[: self.places[len(errors) - 1]]):
            if nonlinear(layer):
                bend = self.places.index(place + 1)
                slope, height = self.bands[bend - 1]
                point = slope * point + height / 2 * (1 + errors[bend])
            else:
                point = layer(point)
        return point

    def logits(self, point: Tensor, bends: int, frozen: int) -> Tensor:
        """Return the logits of points after `bends` nonlinear layers.

        Layers up to the nonlinear layer number `frozen` get no gradient.
        """
        with torch.no_grad():
            for layer in self.layers[self.places[bends] : self.places[frozen]]:
                point = layer(point)
        for layer in self.layers[self.places[max(bends, frozen)] :]:
            point = layer(point)
        return self.network.readout(point)

    def attacked(self, y: Tensor, bends: int, steps: int) -> Tensor:
        """Find latent points, after `bends` nonlinear layers, on which the loss is large.

        This is PGD over their coefficients, from a random start.
        """
        shapes = [self.reach.shape, *(slope.shape for slope, _ in self.bands[:bends])]
        errors = [2 * torch.rand(shape, generator=self.generator).to(self.reach) - 1 for shape in shapes]
        for _ in range(steps):
            errors = [each.requires_grad_() for each in errors]
            z = self.logits(self.point(errors), bends, 0)
            slopes = torch.autograd.grad(cross_entropy(z, y, reduction="sum"), errors)
            moved = zip(errors, slopes, strict=True)
            errors = [(each.detach() + STEP * slope.sign()).clamp(-1.0, 1.0) for each, slope in moved]
        with torch.no_grad():
            return self.point(errors)

    def _combinations(self, like: Tensor) -> Tensor:
        """Draw random coefficients (B, count, *shape)."""
        return cauchy((len(like), self.count, *like.shape[1:]), self.generator, like)
