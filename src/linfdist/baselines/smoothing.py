"""Randomised smoothing (Cohen et al., 2019) in ℓ∞: claims that hold with high probability, but are not proofs.

The smoothed classifier predicts for x the class that the network predicts most often for x + noise; the noise is normal
with standard deviation σ in each pixel. If that class has probability at least p > 1/2, the prediction is the same in
the whole ℓ2 ball of radius σ Φ⁻¹(p). The ℓ∞ ball of radius ε in d pixels reaches as far as ε √d in ℓ2: that is the
price of the dimension.
"""

import hashlib
import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from statistics import NormalDist

import torch
from torch import Tensor

from ..data.samples import check_labels, check_plain
from ..eps import Eps, parse_eps, round_down
from ..models import PixelNet

ROWS = 512  # noisy images at a time
ABSTAINED = -1


@dataclass(frozen=True)
class StatisticalClaim:
    """Claims about a smoothed classifier, image by image, from samples: each claim may be wrong.

    It is not a certificate. For each image on its own, the claim is wrong with probability at most `alpha` over the
    noise that was drawn, if the noise was normal and independent, which a computer's numbers are only nearly. It is
    about the smoothed classifier, not about the network, and on all of space, not on the computed values of one
    machine.

    prediction: (B,) int64, or `ABSTAINED` where the samples show no majority. radius: (B,) float64, of the ℓ∞ ball in
    which the prediction is claimed to be the same; 0 where nothing is claimed. claimed: (B,) bool: whether that is
    claimed at eps, and the prediction is the label if labels were given. sigma: standard deviation of the noise;
    samples: how many noisy images each claim rests on.
    """

    prediction: Tensor
    radius: Tensor
    claimed: Tensor
    eps: Fraction
    sigma: float
    samples: int
    alpha: float

    @property
    def abstained(self) -> Tensor:
        """(B,) bool: True where nothing is predicted."""
        return self.prediction == ABSTAINED

    def summary(self) -> str:
        """Return one line that says how many images have a claim, and how sure the claims are."""
        return (
            f"{len(self.prediction):,} images, {int(self.claimed.sum()):,} claimed at eps = {self.eps}, "
            f"{int(self.abstained.sum()):,} abstained; each claim is wrong with probability up to {self.alpha:.6g}"
        )


@torch.no_grad()
def smoothed(
    network: PixelNet,
    x: Tensor,
    eps: Eps,
    sigma: float,
    y: Tensor | None = None,
    samples: int = 1000,
    alpha: float = 0.001,
    guesses: int = 100,
    seed: int = 0,
) -> StatisticalClaim:
    """Claim, with probability 1 − alpha for each image, that the smoothed classifier is constant in its ℓ∞ ball.

    network: in eval mode, best trained with the same noise (`methods.Smoothing`). x: images (B, C, H, W) in [0, 1].
    sigma: standard deviation of the noise, on the 0–1 intensity scale. guesses: how many noisy images choose the class;
    `samples` others then bound its probability from below (Clopper & Pearson). y: (B,) labels; if given, only correct
    predictions count as claimed. The noise follows from the seed and the image's place in the batch: give parts of a
    data set different seeds.
    """
    if network.training:
        raise ValueError("a network in training mode cannot be smoothed: call .eval() first")
    if not 0 < sigma < math.inf:
        raise ValueError(f"sigma = {sigma!r}: must be more than 0, the deviation of the noise on the 0–1 scale")
    if min(samples, guesses) < 1:
        raise ValueError(f"samples = {samples!r} and guesses = {guesses!r}: must be at least 1")
    check_plain(x, "x")
    network.check_images(x)
    if y is not None:
        check_labels(network.classes, y, len(x))
    exact, pixels = parse_eps(eps), network.shape[0] * math.prod(network.size)
    prediction, radius, holds = [], [], []
    for place, image in enumerate(x):
        digest = hashlib.sha256(f"{seed}/smoothing/{place}".encode()).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)
        best = int(votes(network, image, sigma, guesses, generator).argmax())
        count = int(votes(network, image, sigma, samples, generator)[best])
        euclidean = radius_of(lower_bound(count, samples, alpha), sigma)
        prediction.append(best if euclidean > 0 else ABSTAINED)
        radius.append(round_down(Fraction(euclidean / math.sqrt(pixels)) * (1 - Fraction(1, 2**50))))
        holds.append(euclidean > 0 and Fraction(euclidean) ** 2 >= exact**2 * pixels)
    found = torch.tensor(prediction, dtype=torch.int64)
    claimed = torch.tensor(holds, dtype=torch.bool)
    if y is not None:
        claimed &= found == y.cpu()
    return StatisticalClaim(found, torch.tensor(radius, dtype=torch.float64), claimed, exact, sigma, samples, alpha)


def votes(network: PixelNet, image: Tensor, sigma: float, count: int, generator: torch.Generator) -> Tensor:
    """Count how often each class wins on `count` noisy copies of an image (C, H, W): (classes,)."""
    total = torch.zeros(network.classes, dtype=torch.int64)
    for start in range(0, count, ROWS):
        noise = torch.randn(min(ROWS, count - start), *image.shape, generator=generator).to(image)
        z = network(image + sigma * noise)
        classes = z.argmax(1)[z.isfinite().all(1)]  # NaN and overflow vote for nothing
        total += classes.cpu().bincount(minlength=network.classes)
    return total


def radius_of(probability: float, sigma: float) -> float:
    """Return slightly less than σ Φ⁻¹(p), or 0 for p <= 1/2. Φ⁻¹ is known to about 1e-15, and 2^-30 is taken off."""
    return sigma * NormalDist().inv_cdf(probability) * (1 - 2.0**-30) if probability > 0.5 else 0.0


FINE = 2.0**-20  # bounds are multiples of it
SMALL, LARGE = 2.0**-400, 2.0**400


@cache
def lower_bound(successes: int, trials: int, alpha: float) -> float:
    """Bound the probability of a success from below, given the successes in independent trials (Clopper & Pearson).

    Returns a p such that `successes` or more in independent trials of probability p have probability <= alpha;
    or 0. If the probability of a success is q, then q >= lower_bound(…) with probability at least 1 − alpha over the
    trials. The result is the largest such multiple of 2^-20 or, rarely, one of the next below: it has passed `at_most`.
    """
    if not 0 <= successes <= trials or trials < 1:
        raise ValueError(f"successes = {successes!r} of trials = {trials!r}: need at least one trial")
    if not 0 < alpha < 1:
        raise ValueError(f"alpha = {alpha!r}: must be more than 0 and less than 1, the probability of being wrong")
    low, high = 0, math.floor(successes / trials / FINE)  # at successes / trials, the tail is about one half
    while high - low > 0:
        middle = (low + high + 1) // 2
        if at_most(successes, trials, middle * FINE, alpha):
            low = middle
        else:
            high = middle - 1
    return low * FINE


def at_most(successes: int, trials: int, p: float, alpha: float) -> bool:
    """Return whether `successes` or more of independent trials of probability p surely have probability <= alpha.

    The tail is its first term, C(n, k) p^k (1 − p)^(n − k), times 1 + r₁ + r₁ r₂ + …, with quotients r of one term and
    the one before it. All numbers are positive, so each rounding costs 2^-53 of the result. There are three roundings
    for each factor of the first term and six for each quotient, so that sixteen for each trial outweigh them.
    """
    n, k = trials, successes
    if k == 0 or p >= 1:
        return False
    if p <= 0:
        return True
    first, scale = 1.0, 0  # the first term is first · 2^scale
    for i in range(1, k + 1):
        first *= (n - k + i) / i * p
        if not SMALL < first < LARGE:
            first, power = math.frexp(first)
            scale += power
    for _ in range(n - k):
        first *= 1 - p
        if first < SMALL:
            first, power = math.frexp(first)
            scale += power
    odds = p / (1 - p)
    term = total = 1.0
    for j in range(k, n):
        term *= (n - j) / (j + 1) * odds
        total += term
        if term < total * 2.0**-80 and (n - j) / (j + 1) * odds < 0.5:
            total += term  # the sum of all later terms is less than this one
            break
    errors = Fraction(16 * (n + 16), 2**53)
    tail = Fraction(first) * Fraction(2) ** scale * Fraction(total) * (1 + errors)
    return tail <= Fraction(alpha)
