"""What proves: a network, a method, and all that depends on these two alone; and the search for the largest radius."""

from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple, cast

import torch
from torch import Tensor

from ..bounds import proofs
from ..data.samples import check_labels
from ..eps import round_down, round_up
from ..models import Network, PixelNet
from ..models.base import Columns, Proves
from ..models.composed import narrowed
from ..models.rounding import flush_error, rounding_error
from ..nn.base import Contract
from .checks import check_device, check_eps, check_images, check_network, check_process
from .methods import METHODS
from .proofs import BoxProof, FeatureMargin, LogitMargin, Proof, rows_at_once

STEPS = 24
FINEST = 2.0**-14  # pixels: a sixtieth of a grey level
RELATIVE = 2.0**-10


def largest_proved(
    proves: Callable[[Tensor, Tensor], Tensor], proved: Tensor, failed: Tensor, limit: float = 1.0, together: int = 1
) -> Tensor:
    """Radii (B,) float64, never below `proved`; each was itself proved, so nothing has to be monotone.

    proves(rows, radius): see `Proof.proves`. proved (B,): radii known to hold. failed (B,): radii at which the proof
    failed, or infinity. Steps grow fourfold from a sixteenth of what is proved until one fails; then the interval is
    halved, down to 2^-10 of the radius or 2^-14 pixels. Radii beyond `limit`, where all images are in, are not tried.

    together: how many proofs cost hardly more than one. While so few images are left, those that the next steps could
    ask for are made at once, whatever comes out of the first ones; the radii are the same.
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
    """What is known of images: a radius that is proved, one that is not, and how far to go from the first."""

    low: Tensor
    high: Tensor
    step: Tensor

    def open(self, limit: float) -> Tensor:
        """Which of them are not finished."""
        return (self.high - self.low > RELATIVE * self.low + FINEST) & (self.low < limit)

    def probe(self, limit: float) -> Tensor:
        """The radii to try next."""
        return torch.minimum(self.low + self.step, (self.low + self.high) / 2).clamp(max=limit)


def _steps(proves: Callable[[Tensor, Tensor], Tensor], rows: Tensor, state: State, limit: float, ahead: int) -> State:
    """The states of these rows after so many steps. Column 2 k + 1 of each generation is column k of the one before it
    if its proof holds, column 2 k if not.
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
    """Return what proves by a method: the network's own proofs, if it brings some, else those of its layers."""
    if isinstance(network, PixelNet):  # never its own: what speaks for a float network is checked first
        return Prover(network, method, own)
    return network.prover(method) or Prover(cast(PixelNet, network), method, own)


class Prover:
    """Certificates of one float network by one method, for as long as its tensors and its mode stay as they are.

    The network is checked here, and what depends on it alone is computed. `certify` makes a prover for each call, for
    nobody knows whether tensors have changed in between; a `Certifier` keeps one, of a copy that is its own.

    own: whether nobody else can change the tensors. Then a twin with the same bits computes in place of the network,
    one that keeps lists of the weights that can matter: see `models.composed.narrowed`.
    """

    @torch.no_grad()
    def __init__(self, network: PixelNet, method: str, own: bool = False) -> None:
        check_network(network)
        check_device(network.any_tensor.device)
        self.method, self.entry = method, METHODS[method]
        self.parts = [module for module in network.modules() if isinstance(module, Contract)]
        self.steep = steep = network.readout.lipschitz
        self.lipschitz, self.error = network.lipschitz, rounding_error(network)  # ValueError if it is not finite
        self.network = narrowed(network) if own else network
        self.whole = self.lipschitz if steep is None else round_up(Fraction(self.lipschitz) * Fraction(steep))
        after = self.entry.after_box
        self.bounds = None if after is None and steep is not None else proofs(self.network.readout)
        self.tolerance = 0.0 if after is None else flush_error(network, self.error)
        self.after = None if after is None else after(network)
        self.rows = rows_at_once(network)
        shared = network.terms() > sum(parameter.numel() for parameter in network.parameters())
        self.together = 1 if shared else TOGETHER

    @torch.no_grad()
    def __call__(self, x: Tensor, eps: Fraction | Tensor | None, y: Tensor | None, radii: bool) -> Columns:
        """Prove what `certify` says of images."""
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
        """From a few images to the proofs that are tried in turn, cheap ones first: no method proves less than the
        margin.
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
    """(prediction, radius, certified, margin_radius) of one chunk; certified means nothing if eps is None."""
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
