"""What a run has changed of the recipe it is called after."""

import shlex
from typing import Any

from .loader import load
from .problems import RecipeError
from .schema import Recipe
from .writer import written

_LABELS = {"name", "source"}


def changes(recipe: Recipe) -> dict[str, Any]:
    """Settings that differ from the package's recipe of the same name, as it is now; all, if there is none."""
    try:
        original = load(recipe.name).model_dump()
    except RecipeError:
        original = {}
    values = recipe.model_dump()
    return {key: value for key, value in values.items() if key not in _LABELS and original.get(key) != value}


def setting(key: str, value: Any) -> str:
    """As `--set` takes it."""
    text = value if isinstance(value, str) else "none" if value is None else written(value)
    return f"{key}={text}"


def command(recipe: Recipe) -> str:
    """The command that trains with this recipe, whatever its namesake in the package has become since.

    RecipeError if there is no namesake: then only the recipe's own file can say it.
    """
    load(recipe.name)
    given = (shlex.quote(setting(key, value)) for key, value in changes(recipe).items())
    return " ".join(["linfdist train", recipe.name, *(f"--set {each}" for each in given)])
