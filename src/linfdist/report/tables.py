"""Make tables from rows: pure functions, exact counts. Nothing here knows how a table looks."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ..runs.rows import Counts, Row, count


@dataclass(frozen=True)
class Fates:
    """How many images are certified, undecided, broken and misclassified at eps: the four add up to n.

    undecided: correct, neither certified nor broken; the true robust accuracy lies within this gap.
    broken: correct, but some attack succeeds. misclassified: wrong without any attack.
    """

    certified: int
    undecided: int
    broken: int
    misclassified: int


def fates(counted: Counts) -> Fates:
    """Count the images by fate.

    Without attacks, nothing is broken and every correct image that is not certified is undecided.
    """
    standing = counted.clean if counted.robust is None else counted.robust
    return Fates(
        certified=counted.certified,
        undecided=standing - counted.certified,
        broken=counted.clean - standing,
        misclassified=counted.n - counted.clean,
    )


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
    """Return a line for every class that has an image, in order."""
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
    """Count the images of each pair: matrix[label][prediction]."""
    matrix = [[0] * classes for _ in range(classes)]
    for row in rows:
        matrix[row.label][row.prediction] += 1
    return matrix


def worst_confusions(rows: Sequence[Row], most: int = 8) -> list[tuple[int, int, int]]:
    """Return (label, prediction, number of images) of the most frequent errors, most frequent first."""
    errors = Counter((row.label, row.prediction) for row in rows if not row.correct)
    ordered = sorted(errors.items(), key=lambda error: (-error[1], error[0]))
    return [(label, prediction, images) for (label, prediction), images in ordered[:most]]
