"""Recipes: one readable file per published run and per laptop-size run."""

from .changes import changes, command, setting
from .loader import load, names, override
from .problems import RecipeError
from .schema import Recipe
from .writer import to_toml

__all__ = ["Recipe", "RecipeError", "changes", "command", "load", "names", "override", "setting", "to_toml"]
