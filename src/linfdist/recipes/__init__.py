"""Recipes: one readable file for each published run and for each run of laptop size."""

from .loader import load, names, override
from .problems import RecipeError
from .schema import Recipe
from .writer import changes, command, setting, to_toml

__all__ = ["Recipe", "RecipeError", "changes", "command", "load", "names", "override", "setting", "to_toml"]
