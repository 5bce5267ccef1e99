"""Find recipes, read their files, and resolve inheritance."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ..errors import closest
from ..files import MOST_BYTES, parse_toml, read_bytes, read_json_object
from .problems import RecipeError

if TYPE_CHECKING:  # names are listed without pydantic
    from .schema import Recipe


class _Readable(Protocol):
    @property
    def name(self) -> str: ...

    def read_bytes(self) -> bytes: ...


def names() -> list[str]:
    """Return the names of the recipes of the package: sorted by file, and within a file in its order."""
    return [name for stem, file in _shipped().items() for name in _names_in(stem, _parse(file))]


def load(name_or_path: str | Path) -> Recipe:
    """Load a recipe of the package by its name, or any recipe by the path of its .toml file or of a run's recipe.json.

    `path.toml:variant` is one variant of a file that has several.
    """
    text = str(name_or_path)
    if isinstance(name_or_path, Path) or "/" in text or "\\" in text or _is_file_name(text):
        return _load_path(text)
    for stem, file in _shipped().items():
        if text.startswith(stem):
            content = _parse(file)
            if text in _names_in(stem, content):
                return _resolve(content, stem, text.removeprefix(stem).removeprefix("-"), file.name, Path())
            if text == stem:
                raise RecipeError(
                    [f"is a family of recipes; its members are {', '.join(_names_in(stem, content))}"], text
                )
    known = names()
    raise RecipeError([f"no such recipe{closest(text, known) or '; `linfdist recipes list` shows them all'}"], text)


def override(recipe: Recipe, settings: Iterable[str]) -> Recipe:
    """Return `recipe` with `key=value` settings, as `--set` takes them; the last setting of a key wins."""
    changes: dict[str, object] = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or not key.strip() or not value.strip():
            raise RecipeError([f"{setting!r}: must be key=value, such as width=1024"])
        changes[key.strip()] = value.strip()
    return recipe.override(changes)


def _shipped() -> dict[str, _Readable]:
    found = [file for file in files(__package__).iterdir() if file.name.endswith(".toml")]
    return {file.name.removesuffix(".toml"): file for file in sorted(found, key=lambda file: file.name.split(".")[0])}


def _is_file_name(text: str) -> bool:
    return text.endswith((".toml", ".json")) or ".toml:" in text


def _load_path(text: str) -> Recipe:
    head, found, variant = text.rpartition(".toml:")
    path = Path(head + ".toml") if found else Path(text)
    if not path.is_file():
        raise RecipeError(["no such file"], str(path))
    if path.suffix == ".json":
        return _load_json(path)
    return _resolve(_parse(path), path.stem, variant if found else "", str(path), path.parent)


def _load_json(path: Path) -> Recipe:
    from .schema import build

    try:
        values = read_json_object(path)
    except ValueError as error:
        raise RecipeError([str(error).removeprefix(str(path)).lstrip(": ")], str(path)) from error
    return build(values, str(path), given={})


def _parse(file: _Readable) -> dict[str, Any]:
    try:
        return parse_toml(read_bytes(file, MOST_BYTES) if isinstance(file, Path) else file.read_bytes(), str(file))
    except ValueError as error:
        raise RecipeError([str(error).removeprefix(str(file)).lstrip(": ")], str(file)) from error


def _names_in(stem: str, content: dict[str, Any]) -> Iterator[str]:
    variants = content.get("variants")
    if isinstance(variants, dict):
        yield from (f"{stem}-{variant}" for variant in variants)
    else:
        yield stem


def _resolve(content: dict[str, Any], stem: str, variant: str, where: str, folder: Path) -> Recipe:
    """Merge the base, the file and its variant: what comes later wins."""
    from .schema import build, rescaled

    given = {key: value for key, value in content.items() if key not in ("base", "variants")}
    if "variants" in content or variant:
        given.update(_variant(content.get("variants", {}), variant, where))
    if "name" in given:
        raise RecipeError(["name: is the name of the file; leave it out"], where)
    epochs = given.pop("epochs", None)
    inherited = _base(content["base"], where, folder) if "base" in content else {}
    name = f"{stem}-{variant}" if variant else stem
    recipe = build({**inherited, **given, "name": name}, where, given=given)
    if epochs is None:
        return recipe
    return build(recipe.model_dump() | rescaled(recipe, epochs, where), where, given=given)


def _variant(variants: Any, variant: str, where: str) -> dict[str, Any]:
    if not isinstance(variants, dict) or not all(isinstance(value, dict) for value in variants.values()):
        raise RecipeError(["variants: must be tables, such as [variants.wide]"], where)
    if variant not in variants:
        asked = f"no variant {variant!r}{closest(variant, variants)}" if variant else "is a family of recipes"
        raise RecipeError(
            [f"{asked}; say which: {', '.join(f'{where}:{key}' for key in variants) or 'it has none'}"], where
        )
    return dict(variants[variant])


def _base(base: Any, where: str, folder: Path) -> dict[str, Any]:
    """Return the content of the file that a recipe builds on: one of the package, or a .toml file next to it."""
    shipped = _shipped()
    if not isinstance(base, str):
        raise RecipeError([f"base = {base!r}: must be the name of a recipe"], where)
    if base.endswith(".toml"):
        file: _Readable = folder / base
        if not (folder / base).is_file():
            raise RecipeError([f"base = {base!r}: no such file"], where)
    elif base in shipped:
        file = shipped[base]
    else:
        raise RecipeError([f"base = {base!r}: no such recipe{closest(base, shipped)}"], where)
    content = _parse(file)
    if "base" in content or "variants" in content:
        raise RecipeError([f"base = {base!r}: has a base or variants itself; inheritance is one level deep"], where)
    return content
