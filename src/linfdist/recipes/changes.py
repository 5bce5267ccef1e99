"""What a run has changed in the recipe that it is named after."""

import shlex
from typing import Any

from .loader import load
from .problems import RecipeError
from .schema import Recipe
from .writer import written

_LABELS = {"name", "source"}


def changes(recipe: Recipe) -> dict[str, Any]:
    """Return the settings that differ from the package's recipe of that name; all settings, if there is none."""
    try:
        original = load(recipe.name).model_dump()
    except RecipeError:
        original = {}
    values = recipe.model_dump()
    return {key: value for key, value in values.items() if key not in _LABELS and original.get(key) != value}


def setting(key: str, value: Any) -> str:
    """Return a setting as `--set` takes it."""
    text = value if isinstance(value, str) else "none" if value is None else written(value)
    return f"{key}={text}"


def command(recipe: Recipe) -> str:
    """Return the command that trains with this recipe, even if its namesake in the package has changed since.

    RecipeError if there is no namesake: then training needs the recipe's own file.
    """
    load(recipe.name)
    idle = recipe.idle()  # what has no effect would be refused, unless it is to be removed
    needed = ((key, value) for key, value in changes(recipe).items() if value is None or key not in idle)
    given = (shlex.quote(setting(key, value)) for key, value in needed)
    return " ".join(["linfdist train", recipe.name, *(f"--set {each}" for each in given)])
