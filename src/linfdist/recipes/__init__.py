"""Recipes: one readable file for each published run and for each run of laptop size."""

from .changes import changes, command, setting
from .loader import load, names, override
from .problems import RecipeError
from .schema import Recipe
from .writer import to_toml

__all__ = ["Recipe", "RecipeError", "changes", "command", "load", "names", "override", "setting", "to_toml"]
