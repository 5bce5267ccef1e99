"""Prove predictions of float networks: the kinds of proof, and the prover that runs the methods."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cached_property
from heapq import heappop, heappush
from typing import NamedTuple, cast

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
from ..nn.base import DOWN, UP
from .checks import check_device, check_eps, check_images, check_network, check_process
from .methods import METHODS

TOGETHER = 8  # boxes fill one vector, and cost as much as one box wherever each weight is used once for an image


class Proof(ABC):
    """One method's proofs of the network's predictions on a batch x (B, C, H, W), after a forward pass.

    prediction: (B,) int64. radius: (B,) float64, proved by that pass alone: the prediction is constant on the closed
    ball. closed_form: whether the method proves nothing beyond that, so that no search is needed. together: how many
    images can be proved at once for hardly more than the cost of one, see `largest_proved`.
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


def in_chunks(tensor: Tensor, rows: int) -> Sequence[Tensor]:
    """Cut a tensor with one row per image into chunks of at most `rows` images."""
    return tensor.split(rows) if len(tensor) > rows else (tensor,)


class BallProof(Proof):
    """Proofs by bounds over the whole ball, for as many images at a time as memory allows."""

    def __init__(
        self, network: PixelNet, x: Tensor, prediction: Tensor, tolerance: float, at_once: int | None = None
    ) -> None:
        super().__init__(prediction)
        self.network, self.x, self.tolerance = network, x, tolerance
        self.at_once = at_once or rows_at_once(network)

    def proves(self, rows: Tensor, eps: Tensor) -> Tensor:
        parts = in_chunks(rows, self.at_once)
        radii = in_chunks(eps, self.at_once) if len(eps) > 1 else [eps] * len(parts)
        return torch.cat([self._proves(*pair) for pair in zip(parts, radii, strict=True)])

    @abstractmethod
    def _proves(self, rows: Tensor, eps: Tensor) -> Tensor:
        """Do the same as `proves` for images that fit into memory together."""


class BoxProof(BallProof):
    """Intervals through the body up to the features, then the bounds of the readout."""

    def __init__(
        self, network: PixelNet, x: Tensor, prediction: Tensor, tolerance: float, at_once: int, bounds: ProvesBoxes
    ) -> None:
        super().__init__(network, x, prediction, tolerance, at_once)
        self.bounds = bounds

    def _proves(self, rows: Tensor, eps: Tensor) -> Tensor:
        features = self.network.features_box(ball(self.x[rows], eps))  # (b, F) each
        return self.bounds(features, self.prediction[rows], self.tolerance)


ENOUGH = 1.0  # pixels lie in [0, 1]: such a ball holds all images


class LogitMargin(Proof):
    """The margin of a network that is Lipschitz up to the logits, in closed form: one forward pass.

    radius = (gap − 4E) / 2L, rounded down. Moving x by r moves each exact logit by at most L r, so the gap between two
    by at most 2 L r; and each computed logit is within E of the exact one, at x and at x′. The radius is rounded down
    by more than it could be rounded up, so the ball is closed.
    """

    closed_form = True

    def __init__(
        self, network: PixelNet, x: Tensor, lipschitz: float, error: float, at_once: int | None = None
    ) -> None:
        chunks = in_chunks(x, at_once or rows_at_once(network))
        z = torch.cat([network(few) for few in chunks])  # (B, classes)
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
        reach = largest_of(eps).clamp(max=ENOUGH)
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

    together = TOGETHER

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


# --- running a method -----------------------------------------------------------------------------


STEPS = 24
FINEST = 2.0**-14  # pixels: a sixtieth of a grey level
RELATIVE = 2.0**-10
BEYOND = 0.1  # chance that the next proof holds beyond a margin, which most radii of the zoo hardly exceed
FIRST = 0.75  # and if nothing is proved yet, where few radii are smaller than the first steps


def largest_proved(
    proves: Callable[[Tensor, Tensor], Tensor], proved: Tensor, failed: Tensor, limit: float = 1.0, together: int = 1
) -> Tensor:
    """Search for radii (B,) float64, never below `proved`; each was itself proved, so nothing has to be monotone.

    proves(rows, radius): see `Proof.proves`. proved (B,): radii known to hold. failed (B,): radii at which the proof
    failed, or infinity. Steps grow fourfold from a sixteenth of what is proved until one fails; then the interval is
    halved, down to 2^-10 of the radius or 2^-14 pixels. Radii beyond `limit`, where all images are in, are not tried.

    together: how many proofs cost hardly more than one, see `Search`.
    """
    ends = zip(proved.tolist(), failed.tolist(), strict=True)
    search = Search(proves, [start(low, high, limit) for low, high in ends], proved.device, together)
    return proved.new_tensor([state.low for state in search.run()])


class State(NamedTuple):
    """What is known of an image: a radius that is proved, one that is not, and how far to go from the first.

    chance: that the next proof holds, as a guess, which is kept while it is right. left: how many more steps there may
    be. limit: see `largest_proved`.
    test: a radius to try before all steps, and the one that is proved if that holds, which may be smaller.
    """

    low: float
    high: float
    step: float
    chance: float
    left: int
    limit: float
    test: tuple[float, float] | None = None

    def open(self) -> bool:
        """Return whether there is a radius to try."""
        low = self.low
        unknown = self.left > 0 and low < self.limit and self.high - low > RELATIVE * low + FINEST
        return unknown or self.test is not None

    def radius(self) -> float:
        """Return the radius to try next."""
        return self.test[0] if self.test else min(self.low + self.step, (self.low + self.high) / 2, self.limit)

    def after(self, holds: bool) -> "State":
        """Return the state after a trial of that radius, which held or failed."""
        low, high, step, chance, left, limit, test = self
        if test:
            return start(max(low, test[1]), math.inf, limit) if holds else start(low, test[0], limit)
        guess = chance if holds == (chance > 0.5) else 0.5
        if holds:
            return State(self.radius(), high, 4 * step, guess, left - 1, limit)
        return State(low, self.radius(), step, guess, left - 1, limit)


def start(low: float, high: float, limit: float, test: tuple[float, float] | None = None) -> State:
    """Return the state before the first step: radius `low` is proved, `high` is not; see `State`."""
    return State(low, min(high, 2 * limit), low / 16 + FINEST * 16, BEYOND if low else FIRST, STEPS, limit, test)


class Search:
    """Searches for the radii of several images at once, each on its own.

    proves: see `Proof.proves`. states: what is known of the images. together: how many proofs cost hardly more than
    one. If fewer images are left, proofs that their next steps will most likely need are made along with them; the
    radii stay the same.
    """

    def __init__(
        self,
        proves: Callable[[Tensor, Tensor], Tensor],
        states: list[State],
        device: torch.device,
        together: int,
    ) -> None:
        self.proves, self.states, self.device, self.together = proves, states, device, together
        self.held: list[int] = []  # the images whose test was proved

    def run(self) -> list[State]:
        """Search until no image is open; return the final states."""
        rows = [row for row, state in enumerate(self.states) if state.open()]
        while rows:
            ahead = [_likely(self.states[row], self.together // len(rows)) for row in rows]
            images = [row for row, states in zip(rows, ahead, strict=True) for _ in states]
            radii = [state.radius() for states in ahead for state in states]
            tried = torch.tensor(radii, dtype=torch.float64, device=self.device)[:, None, None, None]
            holds = iter(self.proves(torch.tensor(images, device=self.device), tried).tolist())
            for row, states in zip(rows, ahead, strict=True):
                self._walk(row, dict(zip(states, holds, strict=False)))
            rows = [row for row in rows if self.states[row].open()]
        return self.states

    def _walk(self, row: int, answers: dict[State, bool]) -> None:
        """Advance the search of an image as far as the known answers allow."""
        state = self.states[row]
        while state in answers:
            if state.test and answers[state]:
                self.held.append(row)
            state = state.after(answers[state])
        self.states[row] = state


def _likely(state: State, count: int) -> list[State]:
    """Return up to `count` open states that the search most likely visits next, this one first."""
    if count < 2:
        return [state]
    found: list[State] = []
    waiting = [(-1.0, 0, state)]
    while waiting and len(found) < count:
        weight, _, most = heappop(waiting)
        found.append(most)
        for holds, chance in ((False, 1 - most.chance), (True, most.chance)):
            after = most.after(holds)
            if after.open():
                heappush(waiting, (weight * chance, 2 * len(found) + holds, after))
    return found


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
            first = LogitMargin(self.network, x, self.whole, self.error, self.rows)
        proofs: list[Proof] = [first]
        if self.after is not None:
            assert self.bounds is not None
            box = BoxProof(self.network, x, first.prediction, self.tolerance, self.rows, self.bounds)
            box.together = self.together
            proofs += box, *(make(self.network, x, first.prediction, self.tolerance) for make in self.after)
        return proofs


def _certify(proofs: list[Proof], eps: Fraction | Tensor | None, radii: bool) -> tuple[Tensor, ...]:
    """Return (prediction, radius, certified, margin_radius) of one chunk; ignore certified if eps is None."""
    prediction = proofs[0].prediction
    radius = torch.zeros_like(prediction, dtype=torch.float64)
    certified = torch.zeros_like(prediction, dtype=torch.bool)
    test = (round_up(eps), min(1.0, round_down(eps))) if isinstance(eps, Fraction) else None
    after_each = []
    for proof in proofs:
        radius = torch.maximum(radius, proof.radius)
        search = radii and not proof.closed_form
        rest = (~certified).nonzero()[:, 0]
        if isinstance(eps, Tensor):
            certified[rest] = proof.proves(rest, eps[rest])
        elif test is not None and not search:
            certified[rest] = proof.proves(rest, radius.new_full((1, 1, 1, 1), test[0]))
            radius = torch.where(certified, radius.clamp(min=test[1]), radius)
        if search:
            known = zip(radius.tolist(), certified.tolist(), strict=True)
            states = [start(low, math.inf, ENOUGH, None if there else test) for low, there in known]
            done = Search(proof.proves, states, radius.device, proof.together)
            radius = radius.new_tensor([state.low for state in done.run()])
            certified[done.held] = True
        after_each.append(radius)
    return prediction, radius, certified, after_each[0]


def _nothing(x: Tensor) -> tuple[Tensor, ...]:
    return tuple(x.new_empty(0, dtype=dtype) for dtype in (torch.int64, torch.float64, torch.bool, torch.float64))
