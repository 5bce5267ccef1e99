"""What proves: a network, a method, and all that depends on these two alone, computed once."""

from fractions import Fraction
from typing import cast

import torch
from torch import Tensor

from ..bounds import proofs
from ..eps import round_down, round_up
from ..models import Network, PixelNet
from ..models.base import Columns, Proves
from ..models.composed import narrowed
from ..models.rounding import flush_error, rounding_error
from ..nn.base import Contract
from .box import BoxProof
from .checks import check_eps, check_images, check_labels, check_network, check_process
from .chunks import rows_at_once
from .device import check_device
from .margin import FeatureMargin, LogitMargin
from .methods import METHODS
from .proof import Proof
from .radius import largest_proved

TOGETHER = 8  # boxes fill one vector, and cost as much as one box wherever each weight is used once for an image


def prover_of(network: Network, method: str, own: bool = False) -> Proves:
    """Return what proves by a method: the network's own proofs, if it brings some, else those of its layers."""
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
