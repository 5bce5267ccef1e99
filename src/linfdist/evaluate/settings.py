"""The settings of an evaluation: which images, which network, which questions. Same settings, same rows."""

import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

from ..attacks import ATTACKS
from ..certificates import METHODS
from ..data import Dataset
from ..eps import parse_eps

BATCH = 256
_UNSAID: dict[str, Any] = {"device": "cpu", "radii": True}  # what files do not mention


@dataclass(frozen=True)
class Shard:
    """Part `number` (from 1) of `count`: the batches number - 1, number - 1 + count, ...

    Whole batches are dealt out, so that every image meets the same others in its batch however many shards there are.
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
        """The shard that `3/8` names."""
        match = re.fullmatch(r"\s*([0-9]{1,6})\s*/\s*([0-9]{1,6})\s*", text)
        if match is None:
            raise ValueError(f"shard = {text!r}: must be two whole numbers, such as 3/8, the third of eight")
        return cls(int(match[1]), int(match[2]))

    @classmethod
    def of_this_process(cls) -> "Shard":
        """The shard of this process, if `torchrun` has started it; else the whole."""
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
    about the network as executed there. `radii`: whether the largest radius of each image is searched for. Files of
    evaluations on the CPU do not mention the device, nor those with radii that they have them.
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
        """The settings as they are kept beside the rows."""
        values = asdict(self) | {"attacks": list(self.attacks)}
        return {name: value for name, value in values.items() if (name, value) not in _UNSAID.items()}

    def differences(self, kept: Mapping[str, Any]) -> list[str]:
        """What differs from the settings kept in a file, in words. Images count by content, eps by its value."""
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
    """The methods of proof that a text names, such as `box`, or several with commas: `crown,fast-lin`."""
    names, known = tuple(name.strip() for name in text.split(",")), for_data_sets()
    for name in names:
        if name not in known:
            raise ValueError(f"method = {name!r}: must be one of {', '.join(known)}, or several with commas")
    return names


def parse_attacks(names: Sequence[str]) -> tuple[str, ...]:
    """The attacks that are asked for, once each and in a fixed order; `none` stands for no attack.

    Each text may name several, separated by commas: `pgd,strong`.
    """
    asked = [name.strip() for text in names for name in text.split(",") if name.strip()]
    unknown = [name for name in asked if name not in (*ATTACKS, "none")]
    if unknown:
        raise ValueError(f"attack = {unknown[0]!r}: must be one of none, {', '.join(ATTACKS)}")
    if "none" in asked and len(set(asked)) > 1:
        raise ValueError(f"attack = {','.join(asked)!r}: none cannot be combined with others")
    return tuple(name for name in ATTACKS if name in asked)


def first_images(dataset: Dataset, limit: int | None) -> Dataset:
    """The first `limit` images of a data set; all of them if limit is None or larger than their number."""
    if limit is None or limit >= len(dataset):
        return dataset
    return Dataset(dataset.name, dataset.images[:limit], dataset.labels[:limit], dataset.classes)


def checksum(dataset: Dataset) -> str:
    """The sha256 of the images and labels: a folder's content may change while its name stays."""
    digest = hashlib.sha256(f"{tuple(dataset.images.shape)}".encode())
    digest.update(dataset.images.contiguous().numpy().data)
    digest.update(dataset.labels.contiguous().numpy().data)
    return digest.hexdigest()
