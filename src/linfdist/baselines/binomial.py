"""Lower confidence bounds of a probability (Clopper & Pearson, 1934), rounded down."""

import math
from fractions import Fraction
from functools import cache

FINE = 2.0**-20  # bounds are multiples of it
SMALL, LARGE = 2.0**-400, 2.0**400


@cache
def lower_bound(successes: int, trials: int, alpha: float) -> float:
    """A p such that so many successes, or more, in independent trials of probability p have probability <= alpha; or 0.

    If the probability of a success is q, then q >= lower_bound(…) with probability at least 1 − alpha over the trials.
    The largest such multiple of 2^-20, or, rarely, one of the next below: what is returned has passed `at_most`.
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
    """Whether `successes` or more of independent trials of probability p surely have probability <= alpha.

    The tail is its first term, C(n, k) p^k (1 − p)^(n − k), times 1 + r₁ + r₁ r₂ + …, with quotients r of one term and
    the one before it. All numbers are positive, so each rounding costs 2^-53 of the result: three for each factor of
    the first term, and six for each quotient, so that sixteen for each trial outweigh them.
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
            total += term  # all that follows is less than this one
            break
    errors = Fraction(16 * (n + 16), 2**53)
    tail = Fraction(first) * Fraction(2) ** scale * Fraction(total) * (1 + errors)
    return tail <= Fraction(alpha)
