"""The errors that a caller may want to tell apart. All others are plain ValueErrors, TypeErrors and OSErrors."""

from collections.abc import Iterable


class LinfdistError(Exception):
    """Base of the package's own errors.

    Every error derives from a builtin one too (`DataError` is a `RuntimeError`, `RecipeError` a `ValueError`), so that
    `except ValueError` means what it always means. `training.Interrupted` is not among them: it is a
    `KeyboardInterrupt`, which `except Exception` must not swallow.

    topic: processes that fail with the same topic say so once, if their texts differ.
    """

    topic: str | None = None


def closest(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean ...?`, or nothing if no known word is near."""
    from difflib import get_close_matches

    near = get_close_matches(word, list(known), n=3, cutoff=0.6)
    return f"; did you mean {' or '.join(near)}?" if near else ""


def described(value: object) -> str:
    """Describe a value that was given in place of the expected one: its text, or its type and shape."""
    if isinstance(value, str):
        return f"the text {value[:60]!r}"
    shape = getattr(value, "shape", None)
    return type(value).__name__ + (f" of shape {tuple(shape)}" if isinstance(shape, tuple) else "")
