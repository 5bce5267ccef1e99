"""The folder of a run: its files are read on demand, and checked."""

import functools
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..eps import parse_eps
from ..files import (
    excerpt,
    load_tensors,
    parse_json,
    read_json_object,
    read_lines,
    remove_leftovers,
    save_tensors,
    write_atomically,
)
from .rows import (
    MOST_CLASSES,
    Row,
    Violation,
    check_eps,
    check_rows,
    read_rows,
    summarise,
    violations,
)

if TYPE_CHECKING:
    from torch import Tensor

    from ..recipes import Recipe

MODEL = "model.safetensors"
RECIPE = "recipe.json"
METRICS = "metrics.jsonl"
CHECKPOINT = "checkpoint.safetensors"
ROWS = "rows.jsonl"
SUMMARY = "summary.json"
GALLERY = "gallery.safetensors"
MOST_EPOCHS = 100_000
MOST_GALLERY_BYTES = 2**30
_NEEDED = ("n", "eps", "clean", "robust", "certified", "mean_radius", "method", "model_sha256")
_AGAIN = "evaluate again with --fresh, or remove its folder"


def read_metrics(path: Path) -> tuple[tuple[Mapping[str, Any], ...], bool]:
    """Return the epochs, none if the file is missing, and whether the last line was cut off while it was written.

    Raises ValueError for any other damage.
    """
    epochs: list[Mapping[str, Any]] = []
    for where, line in read_lines(path) if os.path.lexists(path) else ():
        if not line.endswith(b"\n") and not line.rstrip().endswith(b"}"):
            return tuple(epochs), True
        if len(epochs) == MOST_EPOCHS:
            raise ValueError(f"{path} is damaged: it has more than {MOST_EPOCHS:,} lines")
        epochs.append(_epoch(parse_json(line, where), where))
    return tuple(epochs), False


class Run:
    """The folder of a run. Only the files that are asked for must be there; each is read once.

    Raises ValueError or OSError that says what is wrong with a file, and what to do about it.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    @property
    def name(self) -> str:
        """The folder's name, as text that every file can hold."""
        return self.folder.resolve().name.encode("utf-8", "replace").decode()

    @property
    def model_file(self) -> Path:
        """Where the trained network is."""
        return self.folder / MODEL

    def check_trained(self) -> None:
        """Raise FileNotFoundError unless the training is finished, and ValueError if its files are damaged."""
        if not self.model_file.is_file():
            raise FileNotFoundError(f"{self.folder} is not the folder of a finished run: it holds no {MODEL}")
        if self._metrics[1]:
            raise ValueError(f"{self.folder / METRICS} is damaged: its last line is cut off")
        _ = self.recipe

    def check_evaluated(self) -> None:
        """Raise FileNotFoundError unless there are rows and their summary, and ValueError if anything is damaged."""
        if not self.folder.is_dir():
            raise FileNotFoundError(
                f"{self.folder} is not a folder; give the folder that `linfdist evaluate` wrote into"
            )
        for name in (ROWS, SUMMARY):
            if not (self.folder / name).is_file():
                raise FileNotFoundError(f"{self.folder} has no {name}; `linfdist evaluate` writes it")
        _ = self.rows, self.stored_recipe, self.metrics, self.gallery, self.classes

    @functools.cached_property
    def stored_recipe(self) -> Mapping[str, Any] | None:
        """The recipe as it is stored, which may be one of another version; None if there is none."""
        path = self.folder / RECIPE
        return read_json_object(path) if os.path.lexists(path) else None

    @functools.cached_property
    def recipe(self) -> "Recipe":
        """The recipe that the network was trained with."""
        from .. import recipes  # pydantic takes its time, and not every command needs it

        return recipes.load(self.folder / RECIPE)

    @functools.cached_property
    def _metrics(self) -> tuple[tuple[Mapping[str, Any], ...], bool]:
        """The epochs, and whether the last line was cut off while it was written."""
        return read_metrics(self.folder / METRICS)

    @property
    def metrics(self) -> tuple[Mapping[str, Any], ...]:
        """One mapping per epoch; [] if the file is missing. A last line that was cut off is left out."""
        return self._metrics[0]

    @property
    def seconds(self) -> float:
        """The time spent on training up to the last whole epoch, all resumptions together."""
        return float(self.metrics[-1]["seconds"]) if self.metrics else 0.0

    @functools.cached_property
    def _evaluation(self) -> tuple[tuple[Row, ...], dict[str, Any]]:
        results = Results(self.folder)
        summary = results.summary()
        if summary is None:
            raise FileNotFoundError(f"{self.folder} has no {SUMMARY}; `linfdist evaluate` writes it")
        rows = results.checked_rows(summary)
        if not rows:
            raise ValueError(f"{results.rows_file} is empty: {_AGAIN}")
        return tuple(rows), summary

    @property
    def rows(self) -> tuple[Row, ...]:
        """The rows of the evaluation, which the summary was made from."""
        return self._evaluation[0]

    @property
    def summary(self) -> dict[str, Any]:
        """The summary of the evaluation, which agrees with the rows."""
        return self._evaluation[1]

    @property
    def eps(self) -> Fraction:
        """The exact radius at which the images were certified and attacked."""
        return parse_eps(self.summary["eps"])

    @property
    def attacks(self) -> list[str]:
        """The attacks that were run."""
        return list(self.summary.get("attacks", {}))

    @functools.cached_property
    def classes(self) -> tuple[str, ...]:
        """A name for every class: the summary's, else the gallery's, else the class's number."""
        stated = self.summary.get("classes")
        known = stated if stated is not None else self.gallery.classes if self.gallery else ()
        names = _names(known, f"{self.folder / SUMMARY}")
        count = max((max(row.label, row.prediction) for row in self.rows), default=-1) + 1
        return (*names, *(str(k) for k in range(len(names), count)))

    @functools.cached_property
    def gallery(self) -> "Gallery | None":
        """The most and the least robust images; None if there is no such file."""
        path = self.folder / GALLERY
        return Gallery.read(path, self.rows) if os.path.lexists(path) else None


@dataclass(frozen=True)
class Results:
    """Rows and their summary: two files that belong together, of an evaluation or of one shard of it.

    suffix: the part of their names that says which shard; empty for the whole.
    """

    folder: Path
    suffix: str = ""

    @property
    def rows_file(self) -> Path:
        """rows.jsonl, or rows-3-of-8.jsonl."""
        return self.folder / f"rows{self.suffix}.jsonl"

    @property
    def summary_file(self) -> Path:
        """summary.json, or summary-3-of-8.json."""
        return self.folder / f"summary{self.suffix}.json"

    @property
    def part_file(self) -> Path:
        """Where the rows are kept while the evaluation is under way."""
        return self.folder / f"rows{self.suffix}.jsonl.part"

    def write(self, rows: Sequence[Row], summary: Mapping[str, Any]) -> dict[str, Any]:
        """Replace both files and return the summary, with the digests that bind it to the rows.

        There is no summary while the rows change, so a summary always fits the rows beside it.
        """
        text = "".join(json.dumps(row.as_json(), allow_nan=False) + "\n" for row in rows)
        bound = {**summary, "rows_sha256": hashlib.sha256(text.encode()).hexdigest()}
        bound["summary_sha256"] = summary_digest(bound)
        for file in (self.rows_file, self.summary_file):
            remove_leftovers(file)
        self.summary_file.unlink(missing_ok=True)
        write_atomically(self.rows_file, text)
        write_atomically(self.summary_file, json.dumps(bound, indent=2, allow_nan=False) + "\n")
        return bound

    def summary(self) -> dict[str, Any] | None:
        """Read the summary; None if there is none.

        Raises ValueError if it is damaged or was changed after it was written.
        """
        try:
            summary = read_json_object(self.summary_file)
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise ValueError(f"{self.summary_file} is damaged ({error}): {_AGAIN}") from None
        seconds = summary.get("seconds", {})
        if not isinstance(seconds, dict) or any(type(value) not in (int, float) for value in seconds.values()):
            raise ValueError(f"{self.summary_file}: seconds must be numbers, got {excerpt(seconds)}: {_AGAIN}")
        if summary.get("summary_sha256") != summary_digest(summary):
            raise ValueError(
                f"{self.summary_file} was changed after it was written: its content does not have the sha256 "
                f"{excerpt(summary.get('summary_sha256'))} that it states: {_AGAIN}"
            )
        return summary

    def rows(self, summary: Mapping[str, Any], indices: Sequence[int] | None, attacks: Sequence[str]) -> list[Row]:
        """Read the rows that the summary was made from.

        They must be rows of these images (None: of any), attacked by exactly these attacks.
        """
        digest = hashlib.sha256()
        try:
            rows = read_rows(self.rows_file, digest.update)
            if digest.hexdigest() != summary.get("rows_sha256"):
                raise ValueError(f"{self.summary_file.name} was not made from it")
            check_rows(rows, indices, attacks)
        except FileNotFoundError:
            raise ValueError(f"{self.rows_file} is missing: {_AGAIN}") from None
        except ValueError as error:
            raise ValueError(f"{self.rows_file} is damaged ({error}): {_AGAIN}") from None
        return rows

    def checked_rows(self, summary: Mapping[str, Any]) -> list[Row]:
        """Read the rows and check the summary against them.

        Everything that follows from the rows is computed again and compared.
        """
        missing = [key for key in _NEEDED if key not in summary]
        if missing:
            raise ValueError(f"{self.summary_file} has no {', '.join(missing)}: {_AGAIN}")
        for key in ("eps", "method", "model_sha256"):
            if not isinstance(summary[key], str):
                raise ValueError(f"{self.summary_file}: {key} = {excerpt(summary[key])} must be text")
        attacks = summary.get("attacks")
        if not isinstance(attacks, dict):
            raise ValueError(f"{self.summary_file}: attacks = {excerpt(attacks)} must be a JSON object")
        rows, eps = self.rows(summary, None, list(attacks)), str(summary["eps"])
        for key, counted in summarise(rows, eps, list(attacks)).items():
            if not _agree(summary[key], counted):
                raise ValueError(
                    f"{self.summary_file}: {key} = {excerpt(summary[key])}, but {self.rows_file.name} gives "
                    f"{excerpt(counted)}: {_AGAIN}"
                )
        try:
            if found := violations(rows, eps):
                raise ValueError(f"{found[0]}: the certificate is wrong; please report this, or")
            check_eps(rows, eps)
        except ValueError as error:
            raise ValueError(f"{self.rows_file}: {error}: {_AGAIN}") from None
        return rows

    def remove(self) -> None:
        """Delete both files, the summary first: rows alone are not a result."""
        self.summary_file.unlink(missing_ok=True)
        self.rows_file.unlink(missing_ok=True)


@dataclass(frozen=True, eq=False)
class Gallery:
    """Some images, each with the nearest misclassified image found.

    rows: of these images. images: uint8 (N, C, H, W). attacked: float (N, C, H, W). sizes: of the perturbations, None
    where no attack succeeded. predictions: the classes of the attacked images. classes: their names.
    """

    rows: tuple[Row, ...]
    images: "Tensor"
    attacked: "Tensor"
    sizes: tuple[float | None, ...]
    predictions: tuple[int, ...]
    classes: tuple[str, ...]

    def violations(self) -> list[Violation]:
        """Images that change their class within their proved radius."""
        return [
            Violation(row, f"radius {row.radius!r}, but class {prediction} with a perturbation of {size!r}", "smallest")
            for row, size, prediction in zip(self.rows, self.sizes, self.predictions, strict=True)
            if size is not None and row.is_proved(size)
        ]

    def save(self, path: Path) -> None:
        """Write gallery.safetensors: `images` and `attacked`, and everything else as lists in its header."""
        header = {
            "index": [row.index for row in self.rows],
            "label": [row.label for row in self.rows],
            "radius": [row.radius for row in self.rows],
            "size": list(self.sizes),
            "prediction": list(self.predictions),
            "classes": list(self.classes),
        }
        save_tensors(path, {"images": self.images, "attacked": self.attacked.float()}, header)

    @staticmethod
    def read(path: Path, rows: Sequence[Row]) -> "Gallery":
        """Read the gallery in a file.

        Its images must be among `rows`, correct, and have the same label and radius there.
        """
        try:
            return _read_gallery(path, {row.index: row for row in rows if row.correct})
        except ValueError as error:
            raise ValueError(f"{error}; delete it, or evaluate again with --attack") from None


def _read_gallery(path: Path, known: Mapping[int, Row]) -> Gallery:
    if path.stat().st_size > MOST_GALLERY_BYTES:
        raise ValueError(f"{path}: has more than {MOST_GALLERY_BYTES:,} bytes")
    tensors, header = load_tensors(path)
    if tensors.keys() != {"images", "attacked"}:
        raise ValueError(f"{path}: must hold images and attacked, got {excerpt(sorted(tensors))}")
    images, attacked = tensors["images"], tensors["attacked"]
    import torch

    if images.dtype != torch.uint8 or images.dim() != 4 or images.shape[1] not in (1, 3) or not images.numel():
        raise ValueError(f"{path}: images must be uint8 (N, 1 or 3, H, W), got {images.dtype} {tuple(images.shape)}")
    if attacked.dtype != torch.float32 or attacked.shape != images.shape or not attacked.isfinite().all():
        raise ValueError(
            f"{path}: attacked must be finite float32 {tuple(images.shape)}, like images; "
            f"got {attacked.dtype} {tuple(attacked.shape)}"
        )
    columns: dict[str, list[Any]] = {}
    for key in ("index", "label", "radius", "size", "prediction"):
        entries = header.get(key)
        if not isinstance(entries, list) or len(entries) != len(images):
            raise ValueError(f"{path}: {key} must be a list of {len(images)} entries, got {excerpt(entries)}")
        columns[key] = entries
    shown = []
    for index, label, radius in zip(columns["index"], columns["label"], columns["radius"], strict=True):
        row = known.get(index) if type(index) is int else None
        if row is None or (row.label, row.radius) != (label, radius):
            raise ValueError(
                f"{path}: index {excerpt(index)}, label {excerpt(label)}, radius {excerpt(radius)} is not in {ROWS}: "
                "it is of another evaluation"
            )
        shown.append(row)
    for size in columns["size"]:
        if size is not None and (type(size) not in (int, float) or not size > 0):
            raise ValueError(f"{path}: size {excerpt(size)} must be a number above 0")
    for prediction in columns["prediction"]:
        if type(prediction) is not int or not 0 <= prediction < MOST_CLASSES:
            raise ValueError(f"{path}: prediction {excerpt(prediction)} must be a class from 0 to {MOST_CLASSES - 1}")
    gallery = Gallery(
        rows=tuple(shown),
        images=images,
        attacked=attacked,
        sizes=tuple(columns["size"]),
        predictions=tuple(columns["prediction"]),
        classes=_names(header.get("classes"), str(path)),
    )
    if found := gallery.violations():
        raise ValueError(f"{path}: {found[0]}: the certificate is wrong; please report this")
    return gallery


def _names(names: Any, where: str) -> tuple[str, ...]:
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{where}: classes must be a list of names, got {excerpt(names)}")
    if len(names) > MOST_CLASSES:
        raise ValueError(f"{where}: has {len(names)} classes, more than {MOST_CLASSES}")
    return tuple(names)


def _epoch(values: Any, where: str) -> Mapping[str, Any]:
    """Check a line of the metrics: numbers by name, None for an infinite p."""
    if not isinstance(values, dict) or not {"epoch", "step", "seconds"} <= values.keys():
        raise ValueError(f"{where}: must be a JSON object with epoch, step and seconds, got {excerpt(values)}")
    for key, value in values.items():
        needed = key in ("epoch", "step", "seconds")
        if not (value is None and not needed) and type(value) not in (int, float):
            raise ValueError(f"{where}: {excerpt(key)} must be a number, got {excerpt(value)}")
        if needed and value < 0:
            raise ValueError(f"{where}: {key} must not be negative, got {value!r}")
    return values


def _agree(stated: Any, counted: Any) -> bool:
    """Return whether a summary's entry is what the rows give, up to the last digits of a float."""
    if isinstance(counted, dict):
        return stated.keys() == counted.keys() and all(_agree(stated[key], counted[key]) for key in counted)
    if isinstance(counted, float) and type(stated) in (int, float):
        return abs(stated - counted) < 1e-6
    return type(stated) is type(counted) and bool(stated == counted)


def summary_digest(summary: Mapping[str, Any]) -> str:
    """Return the sha256 that binds a summary to its rows: of all entries except this one and the times."""
    bound = {key: value for key, value in summary.items() if key not in ("summary_sha256", "seconds")}
    return hashlib.sha256(json.dumps(bound, sort_keys=True).encode()).hexdigest()
