"""The numbers that are reported, from rows alone."""

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

Row = dict[str, Any]


def summarise(rows: Sequence[Row], eps: str, attacks: Sequence[str] | None = None) -> dict[str, Any]:
    """Percentages of all images; errors count as radius 0, and as broken by every attack.

    attacks: those that were run; default: those found in the rows. `robust` is the share that survives all of them, and
    null if there are none. Of no rows at all, every number is null.
    """
    if attacks is None:
        attacks = list(dict.fromkeys(name for row in rows for name in row.get("attacks", {})))
    correct = [row for row in rows if row["prediction"] == row["label"]]
    broken = {name: [_broken(row, name) for row in correct] for name in attacks}
    survivors = sum(not any(found) for found in zip(*broken.values(), strict=True))
    n = len(rows)

    def percent(count: int) -> float | None:
        return 100 * count / n if n else None

    return {
        "n": n,
        "eps": eps,
        "clean": percent(len(correct)),
        "robust": percent(survivors) if attacks else None,
        "certified": percent(sum(row["certified"] for row in rows)),
        "mean_radius": _down(sum((Fraction(row["radius"]) for row in correct), Fraction(0)) / n) if n else None,
        "attacks": {name: percent(found.count(False)) for name, found in broken.items()},
    }


def _broken(row: Row, name: str) -> bool:
    if name not in row.get("attacks", {}):
        raise ValueError(f"image {row['index']} is classified correctly, but its row has no result of attack {name!r}")
    return bool(row["attacks"][name]["broken"])


def _down(exact: Fraction) -> float:
    """What is proved is never rounded up."""
    nearest = float(exact)
    return nearest if Fraction(nearest) <= exact else math.nextafter(nearest, -math.inf)
