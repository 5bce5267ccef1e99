"""The runs that make up a table of the paper, at each scale."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Literal, get_args

from ... import recipes
from ...files import parse_toml
from ...report.published import Result, tables

if TYPE_CHECKING:
    from ...recipes import Recipe

Scale = Literal["paper", "laptop"]
SCALES: tuple[str, ...] = get_args(Scale)


@dataclass(frozen=True)
class Planned:
    """One row of a table.

    published: the paper's numbers for it, None for what only we have; settings: what differs from the recipe of that
    name; recipe: with these settings.
    """

    table: int
    scale: Scale
    label: str
    published: Result | None
    settings: Mapping[str, Any]
    recipe: Recipe

    @property
    def name(self) -> str:
        """Name the row as its recipe is named."""
        return self.recipe.name

    def with_seed(self, seed: int) -> Recipe:
        """Make the recipe of one run."""
        return self.recipe.override({"seed": seed}) if seed != self.recipe.seed else self.recipe


@functools.cache
def _tables() -> dict[int, dict[str, Any]]:
    content = parse_toml((files(__package__) / "tables.toml").read_bytes(), "tables.toml")
    return {int(number): table for number, table in content.items()}


def numbers() -> list[int]:
    """List the tables that can be run."""
    return list(_tables())


def plan(table: int, scale: Scale) -> list[Planned]:
    """List the rows of a table, those of the paper first."""
    content = _tables()[table]
    own: dict[str, str] = content.get("own", {}) if scale == "laptop" else {}
    more: dict[str, str] = own | (content.get("more", {}) if scale == "laptop" else {})
    planned = []
    for name in [*content["rows"], *more]:
        recipe = recipes.load(name)
        published = None if name in more else published_row(table, recipe)
        settings = _settings(content, recipe) if scale == "laptop" and name not in own else {}
        label = more[name] if published is None else published.method
        planned.append(Planned(table, scale, label, published, settings, recipe.override(settings)))
    return planned


def _settings(content: Mapping[str, Any], recipe: Recipe) -> dict[str, Any]:
    """Collect the changes that have an effect in this recipe; a recipe refuses the others."""
    wanted = content["laptop"] | content.get("laptop_rows", {}).get(recipe.name, {})
    return {key: value for key, value in wanted.items() if key not in recipe.unused_keys()}


def published_row(table: int, recipe: Recipe) -> Result | None:
    """Find the paper's own row with the recipe's network and techniques; None if the paper has none.

    All that a published row says (depth, smooth, decay, ...) must hold for the recipe; its networks have mean shift.
    """
    for row in tables()[table].rows:
        said = {key: value for key, value in (row.more or {}).items() if key in recipes.Recipe.model_fields}
        same = row.cited is None and row.data == recipe.data and row.model == recipe.model and recipe.mean_shift
        if same and all(getattr(recipe, key) == value for key, value in said.items()):
            return row
    return None
