"""rows.jsonl: one JSON object per image, checked one by one."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any, NoReturn


@dataclass(frozen=True)
class Attempt:
    """What one attack did to one image. size: of the perturbation, in pixels; None if it is not known."""

    broken: bool
    size: float | None = None


@dataclass(frozen=True)
class Row:
    """One image. radius, margin_radius: pixels, proved; attacks: by name, empty if none was run on this image."""

    index: int
    label: int
    prediction: int
    radius: float
    certified: bool
    margin_radius: float | None = None
    attacks: Mapping[str, Attempt] = field(default_factory=dict)

    @property
    def correct(self) -> bool:
        """Whether the clean image is classified as its label."""
        return self.prediction == self.label

    def survives(self, attack: str) -> bool:
        """Errors are not attacked, and count as broken."""
        return self.correct and not self.attacks[attack].broken


def read_rows(path: Path) -> tuple[Row, ...]:
    """All rows, in order. ValueError names the line."""
    rows = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        where = f"{path}, line {number}"
        try:
            values = json.loads(line, parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{where}: is not valid JSON ({error}); evaluate again") from None
        rows.append(_row(values, where))
    if not rows:
        raise ValueError(f"{path} is empty; evaluate again")
    if len({row.index for row in rows}) < len(rows):
        raise ValueError(f"{path} has the same index twice; evaluate again")
    _check_complete(rows, path)
    return tuple(rows)


def attack_names(rows: tuple[Row, ...] | list[Row]) -> list[str]:
    """The attacks that were run, in the order of the rows."""
    return list(dict.fromkeys(name for row in rows for name in row.attacks))


def _row(values: Any, where: str) -> Row:
    if not isinstance(values, dict):
        raise ValueError(f"{where}: must be a JSON object, got {str(values)[:60]!r}")
    row = Row(
        index=_whole(values, "index", where),
        label=_whole(values, "label", where),
        prediction=_whole(values, "prediction", where),
        radius=_number(values, "radius", where),
        certified=_flag(values, "certified", where),
        margin_radius=_number(values, "margin_radius", where) if values.get("margin_radius") is not None else None,
        attacks=_attacks(values.get("attacks", {}), where),
    )
    if row.certified and not row.correct:
        raise ValueError(f"{where}: certified, but predicted {row.prediction} for label {row.label}; evaluate again")
    return row


def _attacks(values: Any, where: str) -> dict[str, Attempt]:
    if not isinstance(values, dict):
        raise ValueError(f"{where}: attacks must be a JSON object, got {values!r}")
    attempts = {}
    for name, attempt in values.items():
        inside = f"{where}, attack {name}"
        if not isinstance(attempt, dict):
            raise ValueError(f"{inside}: must be a JSON object, got {attempt!r}")
        size = _number(attempt, "size", inside) if attempt.get("size") is not None else None
        attempts[name] = Attempt(_flag(attempt, "broken", inside), size)
    return attempts


def _check_complete(rows: list[Row], path: Path) -> None:
    names = attack_names(rows)
    for row in rows:
        missing = [name for name in names if name not in row.attacks]
        if row.correct and missing:
            raise ValueError(f"{path}: index {row.index} was not attacked by {', '.join(missing)}, others were")


def check_proofs(rows: tuple[Row, ...], eps: Fraction, path: Path) -> None:
    """A successful attack within a proved ball disproves the certificate: such rows are never shown as results."""
    for row in rows:
        proved = max(Fraction(row.radius), eps if row.certified else Fraction(0))
        for name, attempt in row.attacks.items():
            size = eps if attempt.size is None else Fraction(attempt.size)  # attacks stay within the eps-ball
            if attempt.broken and size <= proved:
                raise ValueError(
                    f"{path}: index {row.index} is proved up to {float(proved)!r}, but {name} broke it with size "
                    f"{float(size)!r}: the certificate is wrong; please report this with the model"
                )


def _no_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON number")


def _whole(values: Mapping[str, Any], key: str, where: str) -> int:
    value = values.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{where}: {key} must be a whole number from 0 on, got {value!r}")
    return value


def _number(values: Mapping[str, Any], key: str, where: str) -> float:
    value = values.get(key)
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value) or value < 0:
        raise ValueError(f"{where}: {key} must be a finite number from 0 on, got {value!r}")
    return float(value)


def _flag(values: Mapping[str, Any], key: str, where: str) -> bool:
    value = values.get(key)
    if not isinstance(value, bool):
        raise ValueError(f"{where}: {key} must be true or false, got {value!r}")
    return value
