"""Which cases run: a choice every time, and all of them with LINFDIST_TEST_PROFILE=nightly.

The choice is a covering array: of all combinations of a test's parameters, so many that every pair of values meets.
"""

import os
from collections.abc import Hashable, Mapping, Sequence
from itertools import combinations

NIGHTLY = os.environ.get("LINFDIST_TEST_PROFILE") == "nightly"
Pair = tuple[Hashable, ...]


def pairs_of(case: Mapping[str, Hashable]) -> frozenset[Pair]:
    """All pairs of a parameter's value with another one's; of a single parameter, its value."""
    entries = sorted(case.items())
    return frozenset(combinations(entries, 2)) if len(entries) > 1 else frozenset((each,) for each in entries)


def covering(cases: Sequence[Mapping[str, Hashable]]) -> list[int]:
    """Return the positions of cases that have all pairs that any of them has, in order; always the same ones.

    Greedy: next comes the case with the most pairs that are missing so far, the first of equals.
    """
    pairs = [pairs_of(case) for case in cases]
    missing, chosen, left = frozenset[Pair]().union(*pairs), [], list(range(len(cases)))
    while missing:
        best = max(left, key=lambda k: (len(pairs[k] & missing), -k))
        missing -= pairs[best]
        chosen.append(best)
        left = [k for k in left if pairs[k] & missing]
    return sorted(chosen)
