"""The settings of an evaluation, and its rows in progress, kept batch by batch: at most one batch is lost."""

import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..attacks import ATTACKS
from ..certificates.methods import METHODS, check_method
from ..eps import parse_eps
from ..errors import closest
from ..files import (
    MOST_LINE_BYTES,
    append,
    check_writable,
    excerpt,
    parse_json,
    read_lines,
    remove_leftovers,
    write_atomically,
)
from ..runs.rows import Row, check_rows

if TYPE_CHECKING:
    from ..data import Dataset

BATCH = 256
_UNSAID: dict[str, Any] = {"device": "cpu", "radii": True}  # what files do not mention


@dataclass(frozen=True)
class Shard:
    """Part `number` (from 1) of `count`: the batches number - 1, number - 1 + count, ...

    Whole batches are dealt out, so that every image has the same batch for every number of shards.
    """

    number: int = 1
    count: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.number <= self.count:
            raise ValueError(f"shard = '{self}': the first number must be between 1 and the second, such as 3/8")

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"

    @property
    def suffix(self) -> str:
        """The part of the files' names that says which shard they are of; empty for the whole."""
        return "" if self.count == 1 else f"-{self.number}-of-{self.count}"

    @property
    def all(self) -> "list[Shard]":
        """The shards that make up the whole."""
        return [Shard(number, self.count) for number in range(1, self.count + 1)]

    @classmethod
    def parse(cls, text: str) -> "Shard":
        """Parse the name of a shard, such as `3/8`."""
        match = re.fullmatch(r"\s*([0-9]{1,6})\s*/\s*([0-9]{1,6})\s*", text)
        if match is None:
            raise ValueError(f"shard = {text!r}: must be two whole numbers, such as 3/8, the third of eight")
        return cls(int(match[1]), int(match[2]))

    @classmethod
    def of_this_process(cls) -> "Shard":
        """Return the shard of this process if `torchrun` has started it, else the whole."""
        rank, world = os.environ.get("RANK", "0"), os.environ.get("WORLD_SIZE", "1")
        if not (rank.isdecimal() and world.isdecimal()):
            raise ValueError(
                f"RANK={rank!r}, WORLD_SIZE={world!r}: must be whole numbers, as torchrun sets them; unset them"
            )
        return cls(int(rank) + 1, int(world))


@dataclass(frozen=True)
class EvaluationSettings:
    """Everything that the rows depend on. `eps` is the text as given; `limit` is None if all images are taken.

    `method` may name several, separated by commas. `device` is the type of the device that computes: a certificate is
    about the network as executed there. `radii`: whether the largest radius of each image is searched for. Files
    mention the device only if it is not the CPU, and radii only if there are none.
    """

    model_sha256: str
    data: str
    data_sha256: str
    split: str
    limit: int | None
    eps: str
    method: str
    attacks: tuple[str, ...]
    batch: int
    device: str = "cpu"
    radii: bool = True

    def __post_init__(self) -> None:
        _ = self.radius
        if self.batch < 1:
            raise ValueError(f"batch = {self.batch}: must be at least 1 image")
        if self.limit is not None and self.limit < 1:
            raise ValueError(f"limit = {self.limit}: must be at least 1 image")

    @cached_property
    def radius(self) -> Fraction:
        """The exact value of eps."""
        return parse_eps(self.eps)

    def as_json(self) -> dict[str, Any]:
        """Return the settings in the form that is kept beside the rows."""
        values = asdict(self) | {"attacks": list(self.attacks)}
        return {name: value for name, value in values.items() if (name, value) not in _UNSAID.items()}

    def differences(self, kept: Mapping[str, Any]) -> list[str]:
        """Say in words what differs from the settings kept in a file. Images count by content, eps by its value."""
        mine, kept = _UNSAID | self.as_json(), {**_UNSAID, **kept}
        differing = [name for name in mine if name != "data" and not _same(name, kept.get(name), mine[name])]
        if "data_sha256" in differing:  # name the options that the user gave, if they differ
            differing.remove("data_sha256")
            names = [name for name in ("data", "split", "limit") if kept.get(name) != mine[name]]
            differing = [*dict.fromkeys([*(names or ["data_sha256"]), *differing])]
        return [f"{name}: {_show(kept.get(name))} there, {_show(mine[name])} now" for name in differing]


def _same(name: str, kept: Any, mine: Any) -> bool:
    if name == "attacks" and isinstance(kept, list | dict):  # a list in the part file, by name in a summary
        return set(kept) == set(mine)
    if name == "eps" and isinstance(kept, str):
        try:
            return parse_eps(kept) == parse_eps(mine)
        except ValueError:
            return False
    return bool(kept == mine)


def _show(value: Any) -> str:
    if isinstance(value, list | tuple | dict):
        return "+".join(map(str, value)) or "none"
    if isinstance(value, str) and len(value) == 64:  # a checksum
        return f"{value[:12]}…"
    return "none" if value is None else str(value)


def for_data_sets() -> list[str]:
    """List the methods of proof that are fast enough for a data set."""
    return [name for name, method in METHODS.items() if method.data_sets]


def parse_methods(text: str) -> tuple[str, ...]:
    """Parse the methods of proof that a text names, such as `box`, or several with commas: `crown,fast-lin`."""
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        check_method(name, for_data_sets())
    return names


def parse_attacks(names: Sequence[str]) -> tuple[str, ...]:
    """Return the named attacks, once each and in a fixed order; `none` stands for no attack.

    Each text may name several, separated by commas: `pgd,strong`.
    """
    asked = [name.strip() for text in names for name in text.split(",") if name.strip()]
    unknown = [name for name in asked if name not in (*ATTACKS, "none")]
    if unknown:
        names = ("none", *ATTACKS)
        raise ValueError(f"attack = {unknown[0]!r}: must be one of {', '.join(names)}{closest(unknown[0], names)}")
    if "none" in asked and len(set(asked)) > 1:
        raise ValueError(f"attack = {','.join(asked)!r}: 'none' cannot be combined with other attacks")
    return tuple(name for name in ATTACKS if name in asked)


def first_images(dataset: "Dataset", limit: int | None) -> "Dataset":
    """Return the first `limit` images of a data set; all of them if limit is None or larger than their number."""
    if limit is None or limit >= len(dataset):
        return dataset
    from ..data import Dataset

    return Dataset(dataset.name, dataset.images[:limit], dataset.labels[:limit], dataset.classes)


def checksum(dataset: "Dataset") -> str:
    """Return the sha256 of the images and labels: a folder's content may change while its name stays."""
    floats = f" {dataset.images.dtype}" if dataset.images.is_floating_point() else ""
    digest = hashlib.sha256(f"{tuple(dataset.images.shape)}{floats}".encode())
    digest.update(dataset.images.contiguous().numpy().data)
    digest.update(dataset.labels.contiguous().numpy().data)
    return digest.hexdigest()


FORMAT = "linfdist-rows-1"


@dataclass(frozen=True)
class Done:
    """A finished batch: its rows, and the seconds that each part of the work took."""

    rows: list[Row]
    seconds: dict[str, float]


class Part:
    """A file with one line of settings, then one line per batch.

    A line is written at once and flushed to the disk before the next batch begins. A process that is killed while it
    writes leaves a line without an end, which the next reader drops.
    """

    def __init__(self, path: Path, settings: EvaluationSettings, batches: Mapping[int, range]) -> None:
        """batches: the indices of the images in each batch, by the batch's number, in the order they are worked on."""
        self.path, self.settings, self.batches = path, settings, batches
        self.done: dict[int, Done] = {}

    def start(self) -> None:
        """Begin a new file."""
        remove_leftovers(self.path)
        header = {"format": FORMAT, "settings": self.settings.as_json()}
        write_atomically(self.path, json.dumps(header) + "\n")

    def resume(self) -> None:
        """Read what is finished; ValueError if the file has other settings or was not written by `add`."""
        longest = MOST_LINE_BYTES * (1 + max(map(len, self.batches.values()), default=0))
        whole, different = 0, ["the settings are missing"]
        try:
            for number, (_, line) in enumerate(read_lines(self.path, longest), start=1):
                if not line.endswith(b"\n"):
                    break
                values = parse_json(line, f"line {number}")
                if number == 1:
                    different = self.settings.differences(_settings(values))
                elif not different:
                    self._take(values, f"line {number}")
                whole += len(line)
            if not whole:
                raise ValueError("line 1 is missing")
        except ValueError as error:
            raise ValueError(
                f"{self.path} is damaged and cannot be resumed ({error}): --fresh drops it and starts anew"
            ) from None
        if different:
            raise ValueError(
                f"{self.path} is of an evaluation with other settings ({'; '.join(different)}): "
                "use the same settings to resume it, --fresh to drop it, or another --out"
            )
        if whole < self.path.stat().st_size:
            check_writable(self.path)
            os.truncate(self.path, whole)

    def add(self, batch: int, done: Done) -> None:
        """Keep a finished batch."""
        rows = [row.as_json() for row in done.rows]
        line = json.dumps({"batch": batch, "rows": rows, "seconds": done.seconds}, allow_nan=False) + "\n"
        append(self.path, line)
        self.done[batch] = done

    @property
    def missing(self) -> list[int]:
        """The batches that are still to be done."""
        return [batch for batch in self.batches if batch not in self.done]

    def rows(self) -> list[Row]:
        """All rows so far, in order."""
        return [row for batch in self.batches if batch in self.done for row in self.done[batch].rows]

    def seconds(self) -> dict[str, float]:
        """Return the seconds spent so far on each part of the work."""
        return add_up(done.seconds for done in self.done.values())

    def _take(self, line: Any, where: str) -> None:
        if not isinstance(line, dict) or line.keys() != {"batch", "rows", "seconds"}:
            raise ValueError(f"{where}: must be a batch with its rows and seconds, got {excerpt(line)}")
        batch, rows, seconds = line["batch"], line["rows"], line["seconds"]
        if type(batch) is not int or batch not in self.batches or batch in self.done:
            raise ValueError(f"{where}: batch {excerpt(batch)} does not belong to this file")
        if not isinstance(rows, list) or len(rows) != len(self.batches[batch]):
            raise ValueError(f"{where}: batch {batch} must have {len(self.batches[batch])} rows")
        if not isinstance(seconds, dict) or not all(type(value) is float for value in seconds.values()):
            raise ValueError(f"{where}: seconds must be numbers, got {excerpt(seconds)}")
        parsed = [Row.parse(row, f"{where}, row {k}") for k, row in enumerate(rows, start=1)]
        try:
            check_rows(parsed, self.batches[batch], self.settings.attacks)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None
        self.done[batch] = Done(parsed, seconds)


def _settings(header: Any) -> dict[str, Any]:
    if not isinstance(header, dict) or header.get("format") != FORMAT or not isinstance(header.get("settings"), dict):
        raise ValueError(f"line 1 must hold the settings, got {excerpt(header)}")
    return header["settings"]


def add_up(times: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Add up the values of each entry."""
    total: Counter[str] = Counter()
    for each in times:
        total.update(each)
    return dict(total)
