"""Theorem 4.2: bound the robust error on new images by the training images, with every constant written out."""

import math
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from ..certificates import certify
from ..data.samples import check_labels
from ..eps import parse_eps, round_up
from ..models import PixelNet
from .relu import fold_distances, neuron_widths

LEMMA_A3 = 48.0  # the constant of Lemma A.3, as the paper quotes it
BELOW = 1 - 2.0**-20  # δ must be below what it is compared with


@dataclass(frozen=True)
class RobustErrorBound:
    """The terms of Theorem 4.2; `bound` is their sum, which is vacuous if it is 1 or more.

    n: images; r: the radius, on the 0–1 intensity scale; delta: the probability that the bound fails.
    margin: the δ in (0, 1] with the smallest sum, in pixels; if no sum is below 1, the δ that needs the fewest images.
    margin_error: the share of images that are wrong, or whose certified radius (by the margin) is not above δ + r.
    vc: a bound of the VC dimension (Lemmas A.6 to A.8); vc_fully_connected: that of the paper's ReLU network.
    rademacher: a bound of the Rademacher complexity; complexity: 48/δ times it; loglog, confidence: the last two terms.
    needed: how many images would make the sum less than 1, with this δ and margin_error; infinity if that is 1.
    """

    n: int
    r: float
    delta: float
    margin: float
    margin_error: float
    vc: int
    vc_fully_connected: int
    rademacher: float
    complexity: float
    loglog: float
    confidence: float
    needed: float

    @property
    def bound(self) -> float:
        return self.margin_error + self.complexity + self.loglog + self.confidence

    @property
    def vacuous(self) -> bool:
        """Whether the bound is vacuous: every error is at most 1."""
        return self.bound >= 1


@torch.no_grad()
def robust_error_bound(
    model: PixelNet, images: Tensor, labels: Tensor, r: str | float | Fraction, delta: float
) -> RobustErrorBound:
    """Bound the r-robust error on new images of the same kind by the margins on these (Theorem 4.2).

    With probability 1 − delta over the drawing of the images, no network of this architecture, however it was trained
    on them, has a larger probability that a change of up to r makes it misclassify a new image.

    model: a network of dist layers that has a ReLU form (`to_relu`), in eval mode; images (N, C, H, W) in [0, 1] that
    it was trained on, in its precision; labels (N,); r on the 0–1 intensity scale; delta in (0, 1).

    Lemma by lemma, with h(x, y) half the margin of class y, in pixels, which is 1-Lipschitz:

    - Lemma A.5: if h(x, y) > r, no change by up to r makes the image misclassified.
    - Lemmas A.3 and A.4, with inputs (x, y) that all have the label +1: with probability 1 − 2 exp(−2 t²), for all
      networks and δ in (0, 1], P(h <= r) is at most the share of images with h <= δ + r, + 48/δ R_n + √(log log₂(2/δ) /
      n) + t/√n. t = √(log(2/delta) / 2).
    - Eq. (radevc): R_n <= (1 + r) √(2 V log(e n / V) / n). h may be cut off at ± (1 + r) before all this, since δ <= 1;
      the paper states it for functions of size 1. The bound is never above 1 + r.
    - Lemmas A.6 to A.8: V <= `relu_vc_dimension`.
    """
    if isinstance(delta, bool) or not isinstance(delta, int | float) or not 0 < delta < 1:
        raise ValueError(f"delta = {delta!r}: must be between 0 and 1, the probability that the bound may fail")
    radius = round_up(parse_eps(r, name="r"))
    if not len(images):
        raise ValueError("images is empty: pass the training images")
    sizes = dist_sizes(model)
    check_labels(model.classes, labels, len(images))
    proof = certify(model, images, None, method="margin")
    lead = proof.radius.where(proof.prediction == labels, 0.0)  # h, rounded down; 0 where it is wrong
    vc, n = relu_vc_dimension(sizes), len(images)
    rademacher = _rademacher(vc, n, 1 + radius)
    candidates = (torch.cat([lead - radius, lead.new_ones(1)]) * BELOW).clamp(max=1.0).unique()
    candidates = candidates[candidates > 0]
    errors = torch.searchsorted(lead.sort().values, candidates + radius, right=True).double() / n
    totals = errors + LEMMA_A3 * rademacher / candidates + (torch.log2(2 / candidates).log() / n).sqrt()
    best = int(totals.argmin() if totals.min() < 1 else ((1 - errors) * candidates).argmax())
    margin, error = float(candidates[best]), float(errors[best])
    t = math.sqrt(math.log(2 / delta) / 2)
    return RobustErrorBound(
        n=n,
        r=radius,
        delta=delta,
        margin=margin,
        margin_error=error,
        vc=vc,
        vc_fully_connected=relu_vc_dimension(sizes, fully_connected=True),
        rademacher=rademacher,
        complexity=LEMMA_A3 * rademacher / margin,
        loglog=_loglog(margin, n),
        confidence=t / math.sqrt(n),
        needed=_needed(vc, 1 + radius, margin, error, t),
    )


def dist_sizes(model: PixelNet) -> list[int]:
    """Count the inputs and the neurons of each dist layer; TypeError unless the network consists of distances alone."""
    weights = [layer.weight for layer in fold_distances(model).layers]
    return [weights[0].shape[1], *(len(weight) for weight in weights)]


def relu_vc_dimension(sizes: list[int], fully_connected: bool = False) -> int:
    """Bound the VC dimension of the margins of dist nets with these inputs and neurons per layer (Lemma A.8).

    Theorem 6 of Bartlett et al. (JMLR 20:63, 2019; it is Theorem 7 in the journal) for their ReLU form: with U[i] ReLU
    neurons in layer i of L, P[i] parameters in layers 1 ... i, and R = Σ i U[i],

        V <= L + S log₂(4 e R log₂(2 e R)),  S = Σ P[i].

    It counts signs of polynomials in the parameters, so constants, such as the ±1 of a maximum, are not parameters: P
    counts the weights and biases of the dist net. fully_connected: count the paper's network, in which every weight may
    vary. The maximum of the other classes' logits takes some more layers.
    """
    units, parameters = [], []
    before = sizes[0]
    for inputs, outputs in pairwise(sizes):
        for level, width in enumerate(neuron_widths(inputs)):
            units.append(width * outputs)
            free = 0 if level else (inputs + 1) * outputs
            parameters.append((before + 1) * units[-1] if fully_connected else free)
            before = units[-1]
    items = sizes[-1]
    while items > 1:  # the largest logit of the other classes, of any sign, and the class itself: three neurons for two
        items = -(-items // 2)
        units.append(3 * items + 2)
        parameters.append((units[-2] + 1) * units[-1] if fully_connected else 0)
    units.append(1)
    parameters.append(units[-2] + 1 if fully_connected else 0)
    total = sum((i + 1) * count for i, count in enumerate(units))
    cumulated = sum(accumulate(parameters))
    return len(units) + math.ceil(cumulated * math.log2(4 * math.e * total * math.log2(2 * math.e * total)))


def _rademacher(vc: int, n: int, size: float) -> float:
    """Bound R_n of functions with |f| <= size.

    f is size times the mean of its signs over all thresholds in ±size. By Massart's and Sauer's lemmas, R_n of signs is
    at most √(2 V log(e n / V) / n), if V <= n; it is never above 1.
    """
    return size * min(1.0, math.sqrt(2 * vc * math.log(math.e * n / vc) / n)) if vc <= n else size


def _loglog(margin: float, n: float) -> float:
    return math.sqrt(math.log(math.log2(2 / margin)) / n)


def _needed(vc: int, size: float, margin: float, error: float, t: float) -> float:
    """Find by bisection how many images make the sum less than 1. The terms fall with n from V on."""
    if error >= 1:
        return math.inf

    def enough(n: float) -> bool:
        complexity = LEMMA_A3 / margin * size * math.sqrt(2 * vc * math.log(math.e * n / vc) / n)
        return error + complexity + _loglog(margin, n) + t / math.sqrt(n) < 1

    high = float(vc)
    while not enough(high):
        high *= 2
        if math.isinf(high):
            return math.inf
    low = high / 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return float(math.ceil(high))
