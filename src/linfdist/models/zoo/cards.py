"""A card: where a network comes from, and what was measured of the very file beside it."""

from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, model_validator

from ...eps import parse_eps
from ...files import MOST_BYTES, excerpt, read_bytes
from ...runs.records import Percent, Record

NAME = r"^[a-z0-9][a-z0-9._-]*$"  # its files have it too
Count = Annotated[int, Field(ge=1)]
SHOWN = {
    "name": str,
    "source": str,
    "model": str,
    "depth": int,
    "width": int,
}  # in the recipe


class Survivors(Record):
    """The images that survived an attack."""

    attack: str
    percent: Percent = Field(description="of all test images: right, and not broken")
    images: str = Field(description="which images were attacked; no other can be broken, or it is wrong already")


class Card(Record):
    """All that is known of a network: exact percentages of all `n` test images; eps is text."""

    name: str = Field(pattern=NAME)
    data: str
    eps: str
    recipe: dict[str, Any] = Field(description="all settings of the training, as in the run's recipe.json")
    before: list[str] = Field(default=[], description="commands of the runs that its own begins with, in their order")
    seeds: list[int] = Field(min_length=1, description="of the runs that led to it")
    hours: float = Field(ge=0, description="of training")
    machine: str
    date: str = Field(pattern=r"^\d{4}-\d{2}-\d{2}$", description="of the measurement")
    parameters: Count
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$", description="of the network's file")
    n: Count
    clean: Percent
    pgd20: Survivors
    strongest: Survivors
    certified: Percent
    method: str = Field(description="how it was certified")
    mean_radius: float = Field(ge=0, le=1, description="proved, in pixels; errors count as 0")

    @property
    def mean_in_words(self) -> str:
        """Say what the trained network's logits are averaged with, after a comma; an empty text if with nothing."""
        others = self.recipe.get("mean_with")
        return f", mean with {', '.join(others)}" if others else ""

    @model_validator(mode="after")
    def _fits_together(self) -> "Card":
        parse_eps(self.eps)
        for key, kind in SHOWN.items():
            if type(value := self.recipe.get(key)) is not kind:
                raise ValueError(
                    f"recipe.{key} must be {'text' if kind is str else 'a whole number'}, got {excerpt(value)}"
                )
        others = self.recipe.get("mean_with") or []
        if not isinstance(others, list) or not all(isinstance(each, str) for each in others):
            raise ValueError(f"recipe.mean_with must be a list of names, got {excerpt(others)}")
        if not self.certified <= self.strongest.percent <= self.clean or self.pgd20.percent < self.certified:
            raise ValueError("certified <= attacked <= clean must hold")
        return self


def read(path: Path) -> Card:
    """Read the card in a file; raise ValueError that says what is wrong with it."""
    return Card.parse(read_bytes(path, MOST_BYTES), str(path), "card")
