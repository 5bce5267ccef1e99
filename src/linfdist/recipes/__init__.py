"""Recipes: one readable file for each published run and for each run of laptop size."""

from typing import TYPE_CHECKING

from ..lazy import lazy_names

if TYPE_CHECKING:  # what `__getattr__` below imports when it is first used
    from .loader import load, names, override
    from .problems import RecipeError
    from .schema import Recipe
    from .writer import changes, command, setting, to_toml

__all__ = ["Recipe", "RecipeError", "changes", "command", "load", "names", "override", "setting", "to_toml"]
__getattr__, __dir__ = lazy_names(
    __name__,
    {
        **dict.fromkeys(("load", "names", "override"), "loader"),
        "RecipeError": "problems",
        "Recipe": "schema",
        **dict.fromkeys(("changes", "command", "setting", "to_toml"), "writer"),
    },
)
