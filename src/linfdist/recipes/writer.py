"""Write recipes: in full, as a file for `load`, or as a command with the differences from the package's recipe."""

import json
import shlex
from typing import Any

from .loader import load
from .problems import RecipeError
from .schema import MARGINS, Recipe

_LABELS = {"name", "source"}
_SECTIONS = {
    "source": "",
    "model": "network",
    "pad": "augmentation, training only",
    "loss": "loss",
    "batch_size": "Adam",
    "smooth": "schedule",
}


def to_toml(recipe: Recipe) -> str:
    """Return every key that has an effect, with its meaning as a comment; the name is a comment too."""
    lines = [f"# {recipe.name}"]
    silent = {"name", *recipe.unused_keys()}
    for key, field in Recipe.model_fields.items():
        if _SECTIONS.get(key):
            lines += ["", f"# {_SECTIONS[key]}"]
        value = getattr(recipe, key)
        if value is None or key in silent:
            continue
        setting = f"{key} = {written(value)}"
        lines.append(setting if key == "source" else f"{setting:<31} # {field.description}")
    return "\n".join(lines) + "\n"


def written(value: str | bool | int | float) -> str:
    """Return a value as TOML writes it."""
    if isinstance(value, float):
        return f"{value:.0f}" if value.is_integer() and abs(value) < 1e15 else repr(value)
    return json.dumps(value, ensure_ascii=False)  # TOML's text, whole numbers and booleans are written as in JSON


def changes(recipe: Recipe) -> dict[str, Any]:
    """Return the settings that differ from the package's recipe of that name; all settings, if there is none."""
    values = {key: value for key, value in recipe.model_dump().items() if key not in _LABELS}
    try:
        original = load(recipe.name)
    except RecipeError:
        return {key: value for key, value in values.items() if value is not None}
    here = original.model_copy(update={"eps": recipe.eps})  # where the original's multiples of eps are taken
    return {
        key: value
        for key, value in values.items()
        if getattr(original, key) != value and not (key in MARGINS and _equal(recipe, here, key))
    }


def _equal(recipe: Recipe, other: Recipe, key: str) -> bool:
    """Return whether two values are equal, such as "0.75" and "2.5 eps" at eps = 0.3."""
    try:
        return recipe.fraction(key) == other.fraction(key)
    except ValueError:  # one of them has no such margin, or one that is too large for this eps
        return False


def setting(key: str, value: Any) -> str:
    """Return a setting as `--set` takes it."""
    text = value if isinstance(value, str) else "none" if value is None else written(value)
    return f"{key}={text}"


def command(recipe: Recipe) -> str:
    """Return the command that trains with this recipe, even if its namesake in the package has changed since.

    Raises RecipeError if there is no namesake: then training needs the recipe's own file.
    """
    load(recipe.name)
    unused = recipe.unused_keys()  # what has no effect would be refused, unless it is to be removed
    needed = ((key, value) for key, value in changes(recipe).items() if value is None or key not in unused)
    given = (shlex.quote(setting(key, value)) for key, value in needed)
    return " ".join(["linfdist train", recipe.name, *(f"--set {each}" for each in given)])
