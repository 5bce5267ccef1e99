"""Prove predictions of float networks: the kinds of proof, and the prover that runs the methods."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple, Protocol, cast

import torch
from torch import Tensor

from ..bounds import box_prover
from ..bounds.interval import ProvesBoxes, ball
from ..data.samples import check_labels
from ..eps import round_down, round_up
from ..models import Network, PixelNet
from ..models.base import Columns, Proves, flush_error, rounding_error
from ..models.composed import cache_lists
from ..nn import Box, Contract
from ..nn.base import DOWN, FLUSHED, UP
from .checks import check_device, check_eps, check_images, check_network, check_process
from .methods import METHODS, MakesProof


class Proof(ABC):
    """One method's proofs of the network's predictions on a batch x (B, C, H, W), after a forward pass.

    prediction: (B,) int64. radius: (B,) float64, proved by that pass alone: the prediction is constant on the closed
    ball. closed_form: whether the method proves nothing beyond that, so that no search is needed. together: how many
    images cost hardly more than one, see `largest_proved`.
    """

    closed_form = False
    together = 1

    def __init__(self, prediction: Tensor, radius: Tensor | None = None) -> None:
        self.prediction = prediction
        self.radius = torch.zeros_like(prediction, dtype=torch.float64) if radius is None else radius

    @abstractmethod
    def proves(self, rows: Tensor, eps: Tensor) -> Tensor:
        """Return (b,) bool: whether the predictions of x[rows] are proved constant on their eps-balls within [0, 1].

        The balls are closed. rows (b,) int64; eps float64 >= 0, broadcastable to x[rows]: one for all, one for each
        image or for each pixel.
        """


def largest_of(eps: Tensor) -> Tensor:
    """Return the radius of a ball that holds the box of each image: (b,), or (1,) for all."""
    return eps.flatten(1).amax(1)


ROWS = 512  # enough for the kernels to be at their best
ELEMENTS = 1 << 24  # of the largest activation of a chunk: boxes hold a handful of tensors of that size, 64 MB each


def rows_at_once(network: PixelNet) -> int:
    """Return how many images go through the network at once: scratch memory stays at a few hundred megabytes."""
    return max(1, min(ROWS, ELEMENTS // network.elements()))


def in_chunks(network: PixelNet, tensor: Tensor) -> Sequence[Tensor]:
    """Cut a tensor with one row per image into chunks that go through the network at once."""
    return tensor.split(rows_at_once(network)) if len(tensor) > 1 else (tensor,)


class BallProof(Proof):
    """Proofs by bounds over the whole ball, for as many images at a time as memory allows."""

    def __init__(self, network: PixelNet, x: Tensor, prediction: Tensor, tolerance: float) -> None:
        super().__init__(prediction)
        self.network, self.x, self.tolerance = network, x, tolerance

    def proves(self, rows: Tensor, eps: Tensor) -> Tensor:
        parts = in_chunks(self.network, rows)
        radii = in_chunks(self.network, eps) if len(eps) > 1 else [eps] * len(parts)
        return torch.cat([self._proves(*pair) for pair in zip(parts, radii, strict=True)])

    @abstractmethod
    def _proves(self, rows: Tensor, eps: Tensor) -> Tensor:
        """Do the same as `proves` for images that fit into memory together."""


class BoxProof(BallProof):
    """Intervals through the body up to the features, then the bounds of the readout."""

    def __init__(
        self, network: PixelNet, x: Tensor, prediction: Tensor, bounds: ProvesBoxes, tolerance: float, together: int = 1
    ) -> None:
        super().__init__(network, x, prediction, tolerance)
        self.bounds, self.together = bounds, together

    def _proves(self, rows: Tensor, eps: Tensor) -> Tensor:
        features = self.network.features_box(ball(self.x[rows], eps))  # (b, F) each
        return self.bounds(features, self.prediction[rows], self.tolerance)


class MarginBounds(Protocol):
    """Lower bounds of margins over boxes of pixels."""

    def margins(self, pixels: Box, best: Tensor) -> Tensor:
        """Bound z[best] − z[j], (b, classes) float64; infinity at the best class, −infinity where nothing is known."""


class MarginProof(BallProof):
    """The class is proved where its margins are positive."""

    def __init__(
        self, network: PixelNet, x: Tensor, prediction: Tensor, bounds: MarginBounds, tolerance: float
    ) -> None:
        super().__init__(network, x, prediction, tolerance)
        self.bounds = bounds
        # Beyond this, boxes may be wrong by more than layers allow for.
        self.known = tolerance <= FLUSHED * torch.finfo(x.dtype).tiny

    def _proves(self, rows: Tensor, eps: Tensor) -> Tensor:
        if not self.known:
            return torch.zeros_like(rows, dtype=torch.bool)
        margins = self.bounds.margins(ball(self.x[rows], eps), self.prediction[rows])
        return (margins > 2 * self.tolerance).all(1)


ENOUGH = 1.0  # pixels lie in [0, 1]: such a ball holds all images


class LogitMargin(Proof):
    """The margin of a network that is Lipschitz up to the logits, in closed form: one forward pass.

    radius = (gap − 4E) / 2L, rounded down. Moving x by r moves each exact logit by at most L r, so the gap between two
    by at most 2 L r; and each computed logit is within E of the exact one, at x and at x′. The radius is rounded down
    by more than it could be rounded up, so the ball is closed.
    """

    closed_form = True

    def __init__(self, network: PixelNet, x: Tensor, lipschitz: float, error: float) -> None:
        z = torch.cat([network(few) for few in in_chunks(network, x)])  # (B, classes)
        best = z.topk(2, dim=1).values
        gap = best[:, 0].double() - best[:, 1]  # of numbers that are exact in double, rounded once by 2^-53
        radius = (gap * DOWN - 4 * error * UP) / (2 * lipschitz) * DOWN
        finite = z.isfinite().all(1)  # NaN and overflow certify nothing
        self.network, self.error = network, error
        self.gap = gap.where(finite, 0.0)
        super().__init__(z.argmax(1), torch.where(finite, radius.clamp_(0.0, ENOUGH), 0.0))

    def proves(self, rows: Tensor, eps: Tensor) -> Tensor:
        """Compare with the radius.

        At eps = 0 the ball is x itself, and its logits are known, except for denormal numbers.
        """
        reach = largest_of(eps).clamp(max=1.0)  # a radius of 1 holds all images
        holds = (self.radius[rows] > 0) & (self.radius[rows] >= reach)
        return holds if (reach > 0).all() else holds | ((reach == 0) & (self.gap[rows] > 2 * self.tolerance))

    @cached_property
    def tolerance(self) -> float:
        """Bound the distance of a logit of the same image, computed elsewhere, from the one computed here.

        Where sums may be taken in another order, both are only known to be within E of the exact one.
        """
        modules = [module for module in self.network.modules() if isinstance(module, Contract)]
        repeatable = all(module.repeatable for module in modules)
        return flush_error(self.network, self.error) if repeatable else 2 * self.error


class FeatureMargin(Proof):
    """Section 6: the features move by at most L ε, then the readout's bounds. One pass through the body in all."""

    def __init__(self, network: PixelNet, x: Tensor, bounds: ProvesBoxes, lipschitz: float, error: float) -> None:
        features = network.features(x)  # (B, F)
        super().__init__(network.readout(features).argmax(1))
        self.features, self.bounds, self.lipschitz, self.error = features.double(), bounds, lipschitz, error

    def proves(self, rows: Tensor, eps: Tensor) -> Tensor:
        """Prove by boxes of features.

        Computed features at x and x′ each lie within E of the exact ones: they differ by at most L ε + 2E.
        """
        features = self.features[rows]
        reach = (largest_of(eps)[:, None] * self.lipschitz + 2 * self.error) * UP + features.abs() * 2**-50
        return self.bounds(Box(features - reach, features + reach), self.prediction[rows], 0.0)


class MilpProof(Proof):
    """The exact radius of a tiny network."""

    closed_form = True

    def __init__(self, network: PixelNet, x: Tensor, prediction: Tensor, tolerance: float) -> None:
        from .milp import radii  # its solver is an extra

        super().__init__(prediction, radii(network, x).to(x.device))

    def proves(self, rows: Tensor, eps: Tensor) -> Tensor:
        radius = self.radius[rows]
        return (radius > 0) & (radius >= largest_of(eps).clamp(max=1.0))  # a radius of 1 holds all images


def by_margins(*bounds: MarginBounds) -> list[MakesProof]:
    """Return proofs by lower bounds of margins, which are tried in turn."""

    def by(each: MarginBounds) -> MakesProof:
        return lambda network, x, prediction, tolerance: MarginProof(network, x, prediction, each, tolerance)

    return [by(each) for each in bounds]


# --- running a method -----------------------------------------------------------------------------


STEPS = 24
FINEST = 2.0**-14  # pixels: a sixtieth of a grey level
RELATIVE = 2.0**-10


def largest_proved(
    proves: Callable[[Tensor, Tensor], Tensor], proved: Tensor, failed: Tensor, limit: float = 1.0, together: int = 1
) -> Tensor:
    """Search for radii (B,) float64, never below `proved`; each was itself proved, so nothing has to be monotone.

    proves(rows, radius): see `Proof.proves`. proved (B,): radii known to hold. failed (B,): radii at which the proof
    failed, or infinity. Steps grow fourfold from a sixteenth of what is proved until one fails; then the interval is
    halved, down to 2^-10 of the radius or 2^-14 pixels. Radii beyond `limit`, where all images are in, are not tried.

    together: how many proofs cost hardly more than one. While so few images are left, all proofs that the next steps
    could need are computed at once; the radii are the same.
    """
    low, high = proved.clone(), failed.clamp(max=2 * limit)
    state, done = State(low, high, low / 16 + FINEST * 16), 0
    while done < STEPS:
        rows = state.open(limit).nonzero()[:, 0]
        if not len(rows):
            break
        ahead = min(max(1, (together // len(rows) + 1).bit_length() - 1), STEPS - done)  # steps: 2^ahead - 1 proofs
        found = _steps(proves, rows, State(*(part[rows] for part in state)), limit, ahead)
        for part, new in zip(state, found, strict=True):
            part[rows] = new
        done += ahead
    return state.low


class State(NamedTuple):
    """The state of the search: a radius that is proved, one that failed, and the next step."""

    low: Tensor
    high: Tensor
    step: Tensor

    def open(self, limit: float) -> Tensor:
        """Return which of them are not finished."""
        return (self.high - self.low > RELATIVE * self.low + FINEST) & (self.low < limit)

    def probe(self, limit: float) -> Tensor:
        """Return the radii to try next."""
        return torch.minimum(self.low + self.step, (self.low + self.high) / 2).clamp(max=limit)


def _steps(proves: Callable[[Tensor, Tensor], Tensor], rows: Tensor, state: State, limit: float, ahead: int) -> State:
    """Return the states of these rows after so many steps.

    Column 2 k + 1 of each generation is column k of the one before it if its proof holds, column 2 k if not.
    """
    now, probes = State(*(part[:, None] for part in state)), []
    for _ in range(ahead):
        tried, open_ = now.probe(limit), now.open(limit)
        probes.append(tried)
        low, high = torch.where(open_, tried, now.low), torch.where(open_, tried, now.high)
        pairs = (now.low, low), (high, now.high), (now.step, 4 * now.step)
        now = State(*(torch.stack(pair, 2).flatten(1) for pair in pairs))
    tried = torch.cat(probes, 1)  # (b, 2^ahead - 1)
    holds = proves(rows.repeat_interleave(tried.shape[1]), tried.flatten()[:, None, None, None]).view(tried.shape)
    column = torch.zeros_like(rows)[:, None]
    for generation in range(ahead):
        column = 2 * column + holds.gather(1, column + 2**generation - 1)
    return State(*(part.gather(1, column)[:, 0] for part in now))


TOGETHER = 8  # boxes fill one vector, and cost as much as one box wherever each weight is used once for an image


def prover_of(network: Network, method: str, own: bool = False) -> Proves:
    """Return the prover of a method: the network's own, if it has one, else that of its layers."""
    if isinstance(network, PixelNet):  # never its own: what speaks for a float network is checked first
        return Prover(network, method, own)
    return network.prover(method) or Prover(cast(PixelNet, network), method, own)


class Prover:
    """Certificates of one float network by one method, for as long as its tensors and its mode stay as they are.

    The network is checked here, and what depends on it alone is computed. `certify` makes a prover for each call,
    because tensors may have changed in between; a `Certifier` keeps one for its private copy.

    own: whether nobody else can change the tensors. Then a copy with the same bits and cached lists of the weights that
    can matter replaces the network: see `cache_lists`.
    """

    @torch.no_grad()
    def __init__(self, network: PixelNet, method: str, own: bool = False) -> None:
        check_network(network)
        check_device(network.any_tensor.device)
        self.method, self.entry = method, METHODS[method]
        self.parts = [module for module in network.modules() if isinstance(module, Contract)]
        self.steep = steep = network.readout.lipschitz
        self.lipschitz, self.error = network.lipschitz, rounding_error(network)  # ValueError if it is not finite
        self.network = cache_lists(network) if own else network
        self.whole = self.lipschitz if steep is None else round_up(Fraction(self.lipschitz) * Fraction(steep))
        after = self.entry.after_box
        self.bounds = None if after is None and steep is not None else box_prover(self.network.readout)
        self.tolerance = 0.0 if after is None else flush_error(network, self.error)
        self.after = None if after is None else after(network)
        self.rows = rows_at_once(network)
        shared = network.terms() > sum(parameter.numel() for parameter in network.parameters())
        self.together = 1 if shared else TOGETHER

    @torch.no_grad()
    def __call__(self, x: Tensor, eps: Fraction | Tensor | None, y: Tensor | None, radii: bool) -> Columns:
        """Prove the predictions of images: see `certify`."""
        check_process(self.parts)
        check_images(self.network, x)
        if y is not None:
            check_labels(self.network.classes, y, len(x))
        ball = self._whole(eps, x) if isinstance(eps, Tensor) else eps
        keeps_little = self.steep is not None and not isinstance(ball, Tensor)  # logits: proofs split rows
        rows = max(1, len(x)) if keeps_little else self.rows
        parts = []
        for start in range(0, len(x), rows):
            here = ball[start : start + rows] if isinstance(ball, Tensor) else ball
            parts.append(_certify(self._look(x[start : start + rows]), here, radii))
        prediction, radius, certified, margin = (
            (torch.cat(column) for column in zip(*parts, strict=True)) if parts else _nothing(x)
        )
        if y is not None:
            certified = certified & (prediction == y.to(prediction.device, torch.int64))
        return prediction, radius, None if ball is None else certified, margin

    def _whole(self, eps: Tensor, x: Tensor) -> Tensor:
        """Check a radius for each pixel; return it in float64, of x's shape."""
        if not self.entry.per_pixel:
            raise ValueError(f"eps as a tensor, one number per pixel, is not for method {self.method!r}: take 'box'")
        check_eps(eps, x)
        return eps.detach().to(x.device, torch.float64).broadcast_to(x.shape)

    def _look(self, x: Tensor) -> list[Proof]:
        """Run the forward pass of a few images; return the proofs to try in turn, cheap ones first.

        The first is the margin, so that no method proves less.
        """
        first: Proof
        if self.steep is None:
            assert self.bounds is not None
            first = FeatureMargin(self.network, x, self.bounds, self.whole, self.error)
        else:
            first = LogitMargin(self.network, x, self.whole, self.error)
        if self.after is None:
            return [first]
        assert self.bounds is not None
        box = BoxProof(self.network, x, first.prediction, self.bounds, self.tolerance, self.together)
        return [first, box, *(make(self.network, x, first.prediction, self.tolerance) for make in self.after)]


def _certify(proofs: list[Proof], eps: Fraction | Tensor | None, radii: bool) -> tuple[Tensor, ...]:
    """Return (prediction, radius, certified, margin_radius) of one chunk; ignore certified if eps is None."""
    prediction = proofs[0].prediction
    radius = torch.zeros_like(prediction, dtype=torch.float64)
    certified = torch.zeros_like(prediction, dtype=torch.bool)
    after_each = []
    for proof in proofs:
        radius = torch.maximum(radius, proof.radius)
        failed = torch.full_like(radius, torch.inf)
        rest = (~certified).nonzero()[:, 0]
        if isinstance(eps, Tensor):
            certified[rest] = proof.proves(rest, eps[rest])
        elif eps is not None:
            above = round_up(eps)
            certified[rest] = proof.proves(rest, radius.new_full((1, 1, 1, 1), above))
            radius = torch.where(certified, radius.clamp(min=min(1.0, round_down(eps))), radius)
            failed = failed.where(certified, above)
        if radii and not proof.closed_form:
            radius = largest_proved(proof.proves, radius, failed, together=proof.together)
        after_each.append(radius)
    return prediction, radius, certified, after_each[0]


def _nothing(x: Tensor) -> tuple[Tensor, ...]:
    return tuple(x.new_empty(0, dtype=dtype) for dtype in (torch.int64, torch.float64, torch.bool, torch.float64))
