"""Make tables from rows: pure functions, exact counts. Nothing here knows how a table looks."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from ..rows import Counts, Row, count


@dataclass(frozen=True)
class Fates:
    """What is known of each image at eps: the four numbers add up to n.

    undecided: correct, neither certified nor broken; the truth about certified accuracy lies within this gap.
    broken: correct, but some attack succeeds. misclassified: wrong without any attack.
    """

    certified: int
    undecided: int
    broken: int
    misclassified: int


def fates(counted: Counts) -> Fates:
    """The fates of images. Without attacks, nothing is broken and all that is not certified is undecided."""
    standing = counted.clean if counted.robust is None else counted.robust
    return Fates(
        certified=counted.certified,
        undecided=standing - counted.certified,
        broken=counted.clean - standing,
        misclassified=counted.n - counted.clean,
    )


def curve(rows: Sequence[Row], eps: Fraction, *, margin: bool = False) -> tuple[list[float], list[float]]:
    """Certified accuracy (percent) against radius: y[k] is what is proved for every radius in (x[k-1], x[k]].

    It starts at (0, clean accuracy), the ball of radius 0 being the image itself, and ends at 0. A certified image
    counts up to eps even where its radius, rounded down to a float, is a little less. margin: of the margin radii.
    """
    radii = [0.0 if row.margin_radius is None else row.margin_radius for row in rows if row.correct]
    if not margin:
        radii = [max(row.radius, float(eps)) if row.certified else row.radius for row in rows if row.correct]
    xs, ys = [0.0], [100 * len(radii) / len(rows)]
    steps = sorted(set(radii) - {0.0})
    at_least, ordered = 0, sorted(radii)
    for radius in steps:
        while ordered[at_least] < radius:
            at_least += 1
        xs.append(radius)
        ys.append(100 * (len(ordered) - at_least) / len(rows))
    return [*xs, xs[-1]], [*ys, 0.0]


@dataclass(frozen=True)
class ClassLine:
    """One class: numbers of images, and the radii of the correctly classified ones, ascending."""

    label: int
    n: int
    clean: int
    certified: int
    radii: tuple[float, ...]

    @property
    def median(self) -> float:
        """The median radius of all images of the class, errors as 0; the lower one of two."""
        everyone = [0.0] * (self.n - self.clean) + list(self.radii)
        return everyone[(len(everyone) - 1) // 2]


def by_class(rows: Sequence[Row]) -> list[ClassLine]:
    """One line for every class that has an image, in order."""
    own: dict[int, list[Row]] = {}
    for row in rows:
        own.setdefault(row.label, []).append(row)
    lines = []
    for label in sorted(own):
        counted = count(own[label], ())
        radii = tuple(sorted(row.radius for row in own[label] if row.correct))
        lines.append(ClassLine(label, counted.n, counted.clean, counted.certified, radii))
    return lines


def confusion(rows: Sequence[Row], classes: int) -> list[list[int]]:
    """The number of images for matrix[label][prediction]."""
    matrix = [[0] * classes for _ in range(classes)]
    for row in rows:
        matrix[row.label][row.prediction] += 1
    return matrix


def worst_confusions(rows: Sequence[Row], most: int = 8) -> list[tuple[int, int, int]]:
    """(label, prediction, images) of the commonest errors, commonest first."""
    errors = Counter((row.label, row.prediction) for row in rows if not row.correct)
    ordered = sorted(errors.items(), key=lambda error: (-error[1], error[0]))
    return [(label, prediction, images) for (label, prediction), images in ordered[:most]]


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
