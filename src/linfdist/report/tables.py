"""Tables from rows: pure functions, exact counts. Nothing here knows how a table looks."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from .rows import Row, attack_names


@dataclass(frozen=True)
class Counts:
    """Numbers of images. surviving: by attack; robust: surviving every attack that was run, None if none was."""

    n: int
    clean: int
    certified: int
    surviving: dict[str, int]
    robust: int | None


def counts(rows: Sequence[Row]) -> Counts:
    """Clean, certified and surviving images."""
    names = attack_names(list(rows))
    return Counts(
        n=len(rows),
        clean=sum(row.correct for row in rows),
        certified=sum(row.certified for row in rows),
        surviving={name: sum(row.survives(name) for row in rows) for name in names},
        robust=sum(all(row.survives(name) for name in names) for row in rows) if names else None,
    )


def mean_radius(rows: Sequence[Row]) -> Fraction:
    """Exact mean over all images; errors count as 0."""
    return sum((Fraction(row.radius) for row in rows if row.correct), Fraction(0)) / len(rows)


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


def fates(rows: Sequence[Row]) -> Fates:
    """Without attacks, nothing is broken and all that is not certified is undecided."""
    counted = counts(rows)
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
        """Of all images of the class, errors as 0; the lower one of two."""
        everyone = [0.0] * (self.n - self.clean) + list(self.radii)
        return everyone[(len(everyone) - 1) // 2]


def by_class(rows: Sequence[Row]) -> list[ClassLine]:
    """Every class that has an image, in order."""
    lines = []
    for label in sorted({row.label for row in rows}):
        own = [row for row in rows if row.label == label]
        radii = tuple(sorted(row.radius for row in own if row.correct))
        lines.append(ClassLine(label, len(own), len(radii), sum(row.certified for row in own), radii))
    return lines


def confusion(rows: Sequence[Row], classes: int) -> list[list[int]]:
    """matrix[label][prediction]: number of images."""
    matrix = [[0] * classes for _ in range(classes)]
    for row in rows:
        matrix[row.label][row.prediction] += 1
    return matrix


def worst_confusions(matrix: Sequence[Sequence[int]], most: int = 8) -> list[tuple[int, int, int]]:
    """(label, prediction, images) of the commonest errors, commonest first."""
    errors = [
        (label, prediction, images)
        for label, line in enumerate(matrix)
        for prediction, images in enumerate(line)
        if label != prediction and images
    ]
    return sorted(errors, key=lambda error: -error[2])[:most]


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
    """None where there is nothing to compare: the method is the margin, or no row has a margin radius."""
    pairs = tuple((row.margin_radius, row.radius) for row in rows if row.correct and row.margin_radius is not None)
    if method == "margin" or not pairs:
        return None
    return Gain(
        pairs=pairs,
        mean_margin=sum((Fraction(margin) for margin, _ in pairs), Fraction(0)) / len(pairs),
        mean_radius=sum((Fraction(radius) for _, radius in pairs), Fraction(0)) / len(pairs),
        certified_by_margin=sum(Fraction(margin) >= eps for margin, _ in pairs),
    )
