"""One row per image, the source of every report: its type, its JSON, its invariants, its counts."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

from ..eps import down, parse_eps, percent, round_down, round_up, up
from ..files import excerpt, parse_json, read_lines

MOST_CLASSES = 100_000
MOST_ROWS = 2_000_000
_KEYS = ("index", "label", "prediction", "margin_radius", "radius", "certified", "attacks")
_ATTEMPT_KEYS = ("broken", "prediction", "size")


@dataclass(frozen=True)
class Attempt:
    """The result of one attack on one image: its class, and the largest change of a pixel, never rounded down."""

    broken: bool
    prediction: int
    size: float


@dataclass(frozen=True)
class Row:
    """The results of one image.

    radius: proved, on the 0–1 intensity scale, rounded down; 0 where nothing is proved. margin_radius: what the margin
    alone proves, None if that is not known. certified: the label is predicted, and proved constant on the closed
    eps-ball. attacks: by name; empty if there were none, and for images that are misclassified without being attacked.
    """

    index: int
    label: int
    prediction: int
    radius: float
    certified: bool
    margin_radius: float | None = None
    attacks: Mapping[str, Attempt] = field(default_factory=dict)

    @property
    def correct(self) -> bool:
        """Whether the image is classified correctly without an attack."""
        return self.prediction == self.label

    def survives(self, attack: str) -> bool:
        """Whether the image is classified correctly and this attack did not change that."""
        if self.correct and attack not in self.attacks:
            raise ValueError(
                f"image {self.index} is classified correctly, but its row has no result of attack {attack!r}"
            )
        return self.correct and not self.attacks[attack].broken

    def is_proved(self, size: float | Fraction, eps: Fraction | None = None) -> bool:
        """Whether a perturbation of this size is proved not to change the class. eps: what `certified` speaks of.

        Balls are closed and numbers are compared exactly; a radius of 0 says that nothing was proved.
        """
        exact = Fraction(size)
        by_radius = self.radius > 0 and exact <= Fraction(self.radius)
        return by_radius or (self.certified and eps is not None and exact <= eps)

    def as_json(self) -> dict[str, Any]:
        """Return the row as it is kept in rows.jsonl."""
        values = {key: getattr(self, key) for key in _KEYS}
        return values | {"attacks": {name: dict(vars(attempt)) for name, attempt in self.attacks.items()}}

    @staticmethod
    def parse(values: Any, where: str) -> "Row":
        """Parse the row that `as_json` gave; raise ValueError that starts with `where` and names the wrong value."""
        _check_keys(values, _KEYS, where)
        attacks = values["attacks"]
        if not isinstance(attacks, dict):
            raise ValueError(f"{where}: attacks must be a JSON object, got {excerpt(attacks)}")
        return Row(
            index=_whole(values, "index", where, MOST_ROWS),
            label=_whole(values, "label", where),
            prediction=_whole(values, "prediction", where),
            radius=_number(values, "radius", where),
            certified=_flag(values, "certified", where),
            margin_radius=None if values["margin_radius"] is None else _number(values, "margin_radius", where),
            attacks={name: _attempt(each, f"{where}, attack {excerpt(name)}") for name, each in attacks.items()},
        )


def read_rows(path: Path, tell: Callable[[bytes], object] = len) -> list[Row]:
    """Read all rows of a file, in order; raise ValueError that names the invalid line and value.

    tell: called with every line, such as the `update` of a digest.
    """
    rows: list[Row] = []
    for where, line in read_lines(path):
        tell(line)
        if len(rows) == MOST_ROWS:
            raise ValueError(f"{path}: has more than {MOST_ROWS:,} rows")
        rows.append(Row.parse(parse_json(line, where), where))
    return rows


def check_rows(rows: Sequence[Row], indices: Sequence[int] | None, attacks: Sequence[str]) -> None:
    """Raise ValueError unless these are rows of these images (None: any, once each), attacked by just these attacks."""
    for row, index in zip(rows, indices or (), strict=False):
        if row.index != index:
            raise ValueError(f"the row of image {row.index} is where that of image {index} should be")
    if indices is not None and len(rows) != len(indices):
        raise ValueError(f"there are {len(rows)} rows of {len(indices)} images")
    index, times = Counter(row.index for row in rows).most_common(1)[0] if rows else (0, 0)
    if times > 1:
        raise ValueError(f"there are {times} rows of image {index}")
    for row in rows:
        if row.attacks.keys() != (set(attacks) if row.correct else set()):
            found, wanted = (", ".join(names) or "none" for names in (row.attacks, attacks if row.correct else ()))
            raise ValueError(f"the row of image {row.index} has attacks {excerpt(found)}, not {wanted}")


@dataclass(frozen=True)
class Violation:
    """Two results about one image that cannot both be true."""

    row: Row
    what: str
    attack: str | None = None

    def __str__(self) -> str:
        return f"image {self.row.index}: {self.what}"


def violations(rows: Iterable[Row], eps: str) -> list[Violation]:
    """List contradictions: certified but wrong or broken, or not margin radius <= radius < size of each success."""
    exact = parse_eps(eps)
    return [violation for row in rows for violation in _violations(row, eps, exact)]


def _violations(row: Row, eps: str, exact: Fraction) -> Iterator[Violation]:
    if row.certified and not row.correct:
        yield Violation(row, f"certified for class {row.label}, but predicted {row.prediction}")
    if row.margin_radius is not None and row.margin_radius > row.radius:
        yield Violation(row, f"margin radius {row.margin_radius!r} > radius {row.radius!r}")
    for name, attempt in row.attacks.items():
        if attempt.broken and attempt.prediction == row.label:
            yield Violation(row, f"counted as broken by {name}, but still class {row.label}", name)
        if attempt.broken and row.is_proved(attempt.size, exact):
            by_eps = row.certified and Fraction(attempt.size) <= exact
            proved = f"certified at eps = {eps}" if by_eps else f"radius {row.radius!r}"
            found = f"{name} makes it class {attempt.prediction} with a perturbation of {attempt.size!r}"
            yield Violation(row, f"{proved}, but {found}", name)


def check_eps(rows: Iterable[Row], eps: str) -> None:
    """Raise ValueError for rows that no evaluation at this eps could give, whatever the network.

    A certified image has a radius of at least eps, rounded down; one that is correct but not certified has none beyond
    eps (by more than a grey level, as integer networks may); and attacks stay within the eps-ball.
    """
    exact = parse_eps(eps)
    low, high, beyond = round_down(exact), round_up(exact), round_up(exact + Fraction(1, 255))
    for row in rows:
        image = f"image {row.index} is not of an evaluation at eps = {eps}"
        if row.certified and row.radius < low:
            raise ValueError(f"{image}: it is certified, but its radius is {row.radius!r}")
        if row.correct and not row.certified and row.radius > beyond:
            raise ValueError(f"{image}: it is not certified, but its radius is {row.radius!r}")
        for name, attempt in row.attacks.items():
            if attempt.size > high:
                raise ValueError(f"{image}: attack {excerpt(name)} changed it by {attempt.size!r}")


@dataclass(frozen=True)
class Counts:
    """Numbers of images, and their exact mean radius, in which errors count 0; it is None if there are no images.

    surviving: by attack; robust: the images that survive all attacks, None if none was run. Misclassified images count
    as broken by every attack.
    """

    n: int
    clean: int
    certified: int
    surviving: dict[str, int]
    robust: int | None
    mean_radius: Fraction | None

    def survive(self, images: int) -> str:
        """Return the percentage that survives, as text: rounded up, and down if just as many images are proved.

        Attacks may have missed an image; but if all survivors are proved, the two equal numbers are printed equally.
        """
        return (down if images == self.certified else up)(percent(images, self.n), 2)


def certified_at(rows: Iterable[Row], size: Fraction, eps: Fraction | None) -> int:
    """Count the images that are correct and proved at radius `size`, given the rows of an evaluation at eps."""
    return sum(row.correct and row.is_proved(size, eps) for row in rows)


def attack_names(rows: Iterable[Row]) -> list[str]:
    """List the attacks found in the rows, in their order."""
    return list(dict.fromkeys(name for row in rows for name in row.attacks))


def count(rows: Sequence[Row], attacks: Sequence[str] | None = None) -> Counts:
    """Count the images. attacks: those that were run; default: those found in the rows."""
    names = attack_names(rows) if attacks is None else attacks
    radii = sum((Fraction(row.radius) for row in rows if row.correct), Fraction(0))
    return Counts(
        n=len(rows),
        clean=sum(row.correct for row in rows),
        certified=sum(row.certified for row in rows),
        surviving={name: sum(row.survives(name) for row in rows) for name in names},
        robust=sum(all(row.survives(name) for name in names) for row in rows) if names else None,
        mean_radius=radii / len(rows) if rows else None,
    )


def summarise(rows: Sequence[Row], eps: str, attacks: Sequence[str] | None = None) -> dict[str, Any]:
    """Compute the part of summary.json that follows from rows: percentages of all images, mean radius rounded down.

    attacks: those that were run; default: those found in the rows. Without rows, every number is None.
    """
    counted = count(rows, attacks)

    def percent(images: int | None) -> float | None:
        return None if images is None or not rows else 100 * images / len(rows)

    return {
        "n": counted.n,
        "eps": eps,
        "clean": percent(counted.clean),
        "robust": percent(counted.robust),
        "certified": percent(counted.certified),
        "mean_radius": None if counted.mean_radius is None else round_down(counted.mean_radius),
        "attacks": {name: percent(images) for name, images in counted.surviving.items()},
    }


def _check_keys(values: Any, keys: Sequence[str], where: str) -> None:
    if not isinstance(values, dict) or values.keys() != set(keys):
        raise ValueError(f"{where}: must be a JSON object with the keys {', '.join(keys)}, got {excerpt(values)}")


def _attempt(values: Any, where: str) -> Attempt:
    _check_keys(values, _ATTEMPT_KEYS, where)
    return Attempt(_flag(values, "broken", where), _whole(values, "prediction", where), _number(values, "size", where))


def _whole(values: Mapping[str, Any], key: str, where: str, below: int = MOST_CLASSES) -> int:
    value = values[key]
    if type(value) is not int or not 0 <= value < below:  # a bool is no number here
        raise ValueError(f"{where}: {key} must be a whole number from 0 to {below - 1}, got {excerpt(value)}")
    return value


def _number(values: Mapping[str, Any], key: str, where: str) -> float:
    value = values[key]
    if type(value) not in (int, float) or not 0 <= value < math.inf:
        raise ValueError(f"{where}: {key} must be a finite number from 0 on, got {excerpt(value)}")
    return float(value)


def _flag(values: Mapping[str, Any], key: str, where: str) -> bool:
    value = values[key]
    if not isinstance(value, bool):
        raise ValueError(f"{where}: {key} must be true or false, got {excerpt(value)}")
    return value
