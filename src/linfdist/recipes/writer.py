"""Write a recipe out in full, as a file that `load` reads again."""

import json

from .schema import Recipe

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
    silent = {"name", *recipe.idle()}
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
