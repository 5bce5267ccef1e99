"""From rows to curves: pure functions, exact counts."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from ...runs.rows import Row


def curve(rows: Sequence[Row], eps: Fraction, *, margin: bool = False) -> tuple[list[float], list[float]]:
    """Certified accuracy (percent) against radius: y[k] is what is proved for every radius in (x[k-1], x[k]].

    It starts at (0, clean accuracy), the ball of radius 0 being the image itself, and ends at 0. A certified image
    counts up to eps even where its radius, rounded down to a float, is a little less. margin: of the margin radii.
    """
    radii = [0.0 if row.margin_radius is None else row.margin_radius for row in rows if row.correct]
    if not margin:
        radii = [max(row.radius, float(eps)) if row.certified else row.radius for row in rows if row.correct]
    xs, ys = [0.0], [100 * len(radii) / len(rows)]
    steps = sorted(set(radii) - {0.0, math.inf})  # what nothing changes counts at every radius
    at_least, ordered = 0, sorted(radii)
    for radius in steps:
        while ordered[at_least] < radius:
            at_least += 1
        xs.append(radius)
        ys.append(100 * (len(ordered) - at_least) / len(rows))
    return [*xs, xs[-1]], [*ys, 0.0]


@dataclass(frozen=True)
class Gain:
    """What the method proves beyond the margin, over the correct images that have both radii.

    pairs: (margin radius, radius). certified_by_margin: images whose margin radius reaches eps.
    """

    pairs: tuple[tuple[float, float], ...]
    mean_margin: Fraction
    mean_radius: Fraction
    certified_by_margin: int


def gain(rows: Sequence[Row], eps: Fraction, method: str) -> Gain | None:
    """The gain; None if there is nothing to compare: the method is the margin, or no row has a margin radius."""
    pairs = tuple((row.margin_radius, row.radius) for row in rows if row.correct and row.margin_radius is not None)
    if method == "margin" or not pairs:
        return None
    return Gain(
        pairs=pairs,
        mean_margin=sum((Fraction(margin) for margin, _ in pairs), Fraction(0)) / len(pairs),
        mean_radius=sum((Fraction(radius) for _, radius in pairs), Fraction(0)) / len(pairs),
        certified_by_margin=sum(Fraction(margin) >= eps for margin, _ in pairs),
    )
