"""Explain what is wrong with a recipe: the key, its value, and what is allowed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

from ..errors import LinfdistError, closest
from ..files import excerpt

if TYPE_CHECKING:  # completion does without pydantic
    from pydantic import BaseModel, ValidationError

_KINDS = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "string": "text in quotes",
    "list": "a list",
}
_LIMITS = {
    "greater_than": ("more than", "gt"),
    "greater_than_equal": ("at least", "ge"),
    "less_than": ("less than", "lt"),
    "less_than_equal": ("at most", "le"),
}


class RecipeError(LinfdistError, ValueError):
    """A recipe that cannot be used. Its message has one line per problem; `where` is the file or recipe, if known."""

    def __init__(self, problems: Iterable[str], where: str = "") -> None:
        lines = self.problems = list(problems)
        self.where = where
        super().__init__(f"{where}: {lines[0]}" if where and len(lines) == 1 else "\n  ".join([where, *lines]).strip())


def unknown_key(key: str, known: Iterable[str]) -> str:
    """Return the message for a key that no recipe has."""
    known = list(known)
    return f"{key}: no such key" + (closest(key, known) or f"; the keys are {', '.join(known)}")


def explain(error: ValidationError, schema: type[BaseModel]) -> list[str]:
    """Return one sentence per problem that pydantic has found."""
    return [_explain(dict(problem), schema) for problem in error.errors(include_url=False)]


def in_words(problem: Mapping[str, Any]) -> str:
    """Say what pydantic has found wrong with an entry that is not a setting of a recipe."""
    kind = problem["type"]
    if kind == "missing":
        return "is missing"
    if kind == "extra_forbidden":
        return "no such entry"
    if kind == "value_error":
        return str(problem["msg"]).removeprefix("Value error, ")
    return f"must be {_allowed(kind, problem, None)}, got {excerpt(problem['input'])}"


def _explain(problem: Mapping[str, Any], schema: type[BaseModel]) -> str:
    fields, kind, value = schema.model_fields, problem["type"], problem["input"]
    message = str(problem["msg"]).removeprefix("Value error, ")
    if not problem["loc"]:
        return message
    key = str(problem["loc"][0])
    if kind == "extra_forbidden":
        return unknown_key(key, fields)
    field = fields[key]
    if kind == "missing":
        return f"{key}: is missing ({field.description})"
    if kind == "value_error":
        return message if message.startswith(key) else f"{key} = {excerpt(value)}: {message}"
    return f"{key} = {excerpt(value)}: must be {_allowed(kind, problem, field.annotation)} ({field.description})"


def _allowed(kind: str, problem: Mapping[str, Any], annotation: Any) -> str:
    if kind == "literal_error" and annotation is None:
        return str(problem["ctx"]["expected"])
    if kind == "literal_error":
        choices = _choices(annotation)
        return f"one of {', '.join(choices)}{closest(str(problem['input']), choices)}"
    if kind in _LIMITS:
        word, limit = _LIMITS[kind]
        return f"{word} {_plain(problem['ctx'][limit])}"
    if kind == "finite_number":
        return "finite"
    if kind == "too_short":
        return "longer"
    if kind == "string_pattern_mismatch":
        return f"text of the form {problem['ctx']['pattern']}"
    return _KINDS.get(kind.split("_")[0]) or re.sub("^Input should (be )?", "", str(problem["msg"]))


def _plain(limit: float) -> str:
    return f"{limit:,}" if isinstance(limit, int) else f"{limit:g}"


def _choices(annotation: Any) -> list[str]:
    if get_origin(annotation) is Literal:
        return [str(choice) for choice in get_args(annotation)]
    return [choice for part in get_args(annotation) for choice in _choices(part)]
